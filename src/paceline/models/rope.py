"""Rotary tables: a spec's frequencies, and their cosines and sines at every position.

Owns the arithmetic of rope scaling. Frequencies are float32 and so is position · frequency, because that is how the
models were trained and how transformers computes them: at position 100,000 a more exact product would be a different
angle. Everything a table holds depends on the position alone, never on the length of a sequence.
"""

import math

import numpy as np

from paceline.models.spec import FrequencyDivisors, LinearScaling, Llama3Scaling, RopeSpec, YarnScaling
from paceline.ops.protocol import Float32Array, RotaryTable


def rotary_table(rope: RopeSpec, num_positions: int) -> RotaryTable:
    """cos and sin for positions [0, num_positions): 4 · num_positions · rotated_width bytes together."""
    positions = np.arange(num_positions, dtype=np.float32)
    angles = np.outer(positions, frequencies(rope)).astype(np.float64)
    scale = rope.scaling.attention_factor if isinstance(rope.scaling, YarnScaling) else 1.0
    cos = np.cos(angles).astype(np.float32) * np.float32(scale)
    sin = np.sin(angles).astype(np.float32) * np.float32(scale)
    return RotaryTable(cos, sin)


def frequencies(rope: RopeSpec) -> Float32Array:
    """Radians a position, float32 [rotated_width / 2], scaling applied."""
    exponents = np.arange(0, rope.rotated_width, 2, dtype=np.float32) / np.float32(rope.rotated_width)
    wavelengths: Float32Array = np.exp(exponents.astype(np.float64) * math.log(rope.theta)).astype(np.float32)
    plain: Float32Array = np.float32(1.0) / wavelengths
    match rope.scaling:
        case None:
            return plain
        case LinearScaling(factor):
            return plain / np.float32(factor)
        case FrequencyDivisors(divisors):
            return np.divide(plain, np.array(divisors, np.float32), dtype=np.float32)
        case Llama3Scaling():
            return _llama3(plain, rope.scaling)
        case YarnScaling():
            return _yarn(wavelengths, rope.scaling, rope.theta)


def _llama3(plain: Float32Array, scaling: Llama3Scaling) -> Float32Array:
    """Weight of the kept frequency: 1 from high_frequency_factor turns over the original context, 0 below the low."""
    turns = scaling.original_context * plain.astype(np.float64) / (2.0 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    blended: Float32Array = (plain * (kept + (1.0 - kept) / scaling.factor)).astype(np.float32)
    return blended


def _yarn(wavelengths: Float32Array, scaling: YarnScaling, theta: float) -> Float32Array:
    """Equation 23 of the paper: kept up to the pair that turns beta_fast times, divided from beta_slow on."""
    half = len(wavelengths)
    low, high = (
        half * math.log(scaling.original_context / (turns * 2.0 * math.pi)) / math.log(theta)
        for turns in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.rounds_ramp:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, 2.0 * half - 1.0)
    if low == high:
        high += 0.001
    divided = np.clip((np.arange(half, dtype=np.float32) - np.float32(low)) / np.float32(high - low), 0.0, 1.0)
    interpolated = 1.0 / (np.float32(scaling.factor) * wavelengths)
    ramped: Float32Array = interpolated * divided + 1.0 / wavelengths * (1.0 - divided)
    return ramped.astype(np.float32)
