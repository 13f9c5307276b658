"""Does it fit: memory of a replica as a sum that a person can add up."""

from dataclasses import dataclass
from math import floor

from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.load import Load, Margins
from paceline.costs.units import counted, sized


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Bytes of one replica, all its cards together. `shared_bytes`: the KV of a prefix that all sequences share."""

    memory_bytes: int
    weights_bytes: float
    workspace_bytes: float
    shared_bytes: float
    sequence_bytes: float
    kv_bytes_per_token: float

    @property
    def kv_bytes(self) -> float:
        """What is left for the KV of sequences; below zero the model does not fit."""
        return self.memory_bytes - self.weights_bytes - self.workspace_bytes - self.shared_bytes

    @property
    def num_sequences(self) -> int:
        """Sequences that fit at their full length."""
        return max(0, floor(self.kv_bytes / self.sequence_bytes))


def memory_fit(estimator: DatasheetEstimator, load: Load, margins: Margins) -> MemoryFit:
    """The sum for one replica. A shared prefix is kept once; each sequence keeps the rest."""
    shared_bytes = estimator.kv_bytes(load.cached_tokens) if load.cached_tokens else 0.0
    return MemoryFit(
        memory_bytes=estimator.memory_bytes,
        weights_bytes=estimator.weights_bytes,
        workspace_bytes=estimator.memory_bytes * margins.workspace_share,
        shared_bytes=shared_bytes,
        sequence_bytes=estimator.kv_bytes(load.last_context) - shared_bytes,
        kv_bytes_per_token=estimator.kv_bytes_per_token,
    )


def memory_reasons(fit: MemoryFit, estimator: DatasheetEstimator, load: Load) -> tuple[str, ...]:
    """The arithmetic in sentences."""
    model, weights, kv = estimator.model, estimator.weights, estimator.kv
    numbers = (
        f"{model.num_layers} layers × {model.latent_width} latent numbers"
        if model.latent_width
        else f"2 × {model.num_layers} layers × {model.num_kv_heads} KV heads × {model.head_width}"
    )
    windows = ", less what windows drop" if model.windows else ""
    shared = f" − shared prefix {sized(fit.shared_bytes)}" if fit.shared_bytes else ""
    left = f"{sized(fit.kv_bytes)} for KV" if fit.kv_bytes > 0 else f"{sized(-fit.kv_bytes)} too little"
    return (
        f"weights: {counted(model.num_params)} parameters × {weights.bytes_per_number:.4g} bytes ({weights.name}) = "
        f"{sized(fit.weights_bytes)}",
        f"KV: {numbers} × {kv.bytes_per_number:.4g} bytes ({kv.name}) = {fit.kv_bytes_per_token:,.0f} bytes a token; "
        f"a sequence of {load.last_context:,} tokens{windows}: {sized(fit.sequence_bytes)}",
        f"memory: {estimator.num_cards} × {sized(estimator.hardware.memory_bytes)} − workspace "
        f"{sized(fit.workspace_bytes)} − weights {sized(fit.weights_bytes)}{shared} = {left}: "
        f"{fit.num_sequences:,} sequences",
    )
