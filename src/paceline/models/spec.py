"""What distinguishes one model of our transformer from another: sizes and switches, all of them data.

Owns the numbers the definition in `transformer.py` is parameterized by, and the names and shapes of the tensors it
needs. Never knows where they come from (`families.py`) or how they are stored (`checkpoint.py`). A spec that exists
is valid: sizes are bounded and fit each other, so whoever allocates by them may trust them.
"""

import math
from dataclasses import dataclass, fields

from paceline.errors import CheckpointError
from paceline.ops.protocol import Activation, AttentionShape

MAX_LAYERS = 1_024
MAX_HEADS = 1_024
MAX_WIDTH = 1 << 20
MAX_VOCABULARY = 1 << 22
MAX_CONTEXT = 1 << 24


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Low frequencies divided by `factor`, high ones kept, those between blended (Llama 3.1)."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): a ramp from kept to divided frequencies; cos and sin grow by `attention_factor`."""

    factor: float
    original_context: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    rounds_ramp: bool = True


@dataclass(frozen=True, slots=True)
class FrequencyDivisors:
    """Each pair's frequency divided by its own number: how GGUF stores Llama 3.1's scaling (`rope_freqs`)."""

    divisors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | FrequencyDivisors


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding (Su et al. 2021): the first `rotated_width` elements of a head, in pairs (i, i + half)."""

    theta: float
    rotated_width: int
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        _require("rope theta", math.isfinite(self.theta) and self.theta > 1.0, self.theta, "a number above 1")
        even = self.rotated_width > 0 and self.rotated_width % 2 == 0
        _require("rotated width", even, self.rotated_width, "even and positive")
        match self.scaling:
            case FrequencyDivisors(divisors):
                fits = len(divisors) == self.rotated_width // 2 and all(_is_positive(divisor) for divisor in divisors)
                _require("rope frequency divisors", fits, divisors, f"{self.rotated_width // 2} positive numbers")
            case LinearScaling(factor):
                _require("rope scaling factor", _is_positive(factor), factor, "positive")
            case Llama3Scaling() | YarnScaling():
                for field in fields(self.scaling):
                    value = getattr(self.scaling, field.name)
                    _require(f"rope {field.name}", field.type is bool or _is_positive(value), value, "positive")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes and switches of a pre-norm transformer with grouped-query attention and a gated feed-forward.

    `windows` holds one entry a layer: keys visible to a query, itself included, or None for all.
    `qkv_bias`, `attention_output_bias` and `mlp_bias` say which linears have one.
    """

    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    ff_width: int
    vocab_size: int
    max_context: int
    norm_epsilon: float
    rope: RopeSpec
    windows: tuple[int | None, ...]
    activation: Activation = Activation.SILU
    tied_embeddings: bool = False
    qkv_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False

    def __post_init__(self) -> None:
        for name, limit in _LIMITS.items():
            value = getattr(self, name)
            _require(name, 1 <= value <= limit, value, f"1 to {limit}")
        groups = self.num_heads % self.num_kv_heads == 0
        _require("num_kv_heads", groups, self.num_kv_heads, f"a divisor of the {self.num_heads} heads")
        rotated = self.rope.rotated_width
        _require("rotated width", rotated <= self.head_width, rotated, f"at most the head width {self.head_width}")
        epsilon = self.norm_epsilon
        _require("norm_epsilon", math.isfinite(epsilon) and 0.0 <= epsilon < 1.0, epsilon, "0 or more, below 1")
        _require("windows", len(self.windows) == self.num_layers, len(self.windows), f"{self.num_layers} entries")
        for window in self.windows:
            _require("sliding window", window is None or window >= 1, window, "at least 1")

    def attention(self, layer_index: int) -> AttentionShape:
        """The attention of one layer."""
        return AttentionShape(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_width=self.head_width,
            scale=self.head_width**-0.5,
            window=self.windows[layer_index],
        )

    def tensor_shapes(self) -> dict[str, tuple[int, int]]:
        """Every tensor the model needs, under its canonical name: (rows, columns). A vector has one row."""
        shapes = {"embedding.weight": (self.vocab_size, self.width)}
        for layer_index in range(self.num_layers):
            for name, shape in self._layer_shapes().items():
                shapes[f"layers.{layer_index}.{name}"] = shape
        shapes["final_norm.weight"] = (1, self.width)
        if not self.tied_embeddings:
            shapes["head.weight"] = (self.vocab_size, self.width)
        return shapes

    def _layer_shapes(self) -> dict[str, tuple[int, int]]:
        query, key_value = self.num_heads * self.head_width, self.num_kv_heads * self.head_width
        linears = {
            "query": (query, self.width, self.qkv_bias),
            "key": (key_value, self.width, self.qkv_bias),
            "value": (key_value, self.width, self.qkv_bias),
            "attention_output": (self.width, query, self.attention_output_bias),
            "gate": (self.ff_width, self.width, self.mlp_bias),
            "up": (self.ff_width, self.width, self.mlp_bias),
            "down": (self.width, self.ff_width, self.mlp_bias),
        }
        shapes = {"attention_norm.weight": (1, self.width), "mlp_norm.weight": (1, self.width)}
        for name, (rows, columns, has_bias) in linears.items():
            shapes[f"{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{name}.bias"] = (1, rows)
        return shapes


_LIMITS = {
    "num_layers": MAX_LAYERS,
    "width": MAX_WIDTH,
    "num_heads": MAX_HEADS,
    "num_kv_heads": MAX_HEADS,
    "head_width": MAX_WIDTH,
    "ff_width": MAX_WIDTH,
    "vocab_size": MAX_VOCABULARY,
    "max_context": MAX_CONTEXT,
}


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0.0


def _require(name: str, holds: bool, value: object, needed: str) -> None:
    if not holds:
        raise CheckpointError(f"the model's {name} is {value}, must be {needed}")
