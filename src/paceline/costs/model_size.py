"""What a plan needs to know of a model: parameters, layers, KV heads, head width, windows, experts.

Owns the arithmetic of sizes: bytes of KV a token, parameters a step touches. Plain numbers only; where they come from
(a name, a config, a file) is somebody else's. KV is always counted from real KV heads and the real head width, which
is not width / heads for many models.
"""

import math
from collections import Counter
from dataclasses import dataclass

from paceline.errors import ConfigError

# Keys and values, each of one number per head element.
KEY_AND_VALUE = 2


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture: each token goes through `num_chosen` of `num_experts`."""

    num_experts: int
    num_chosen: int


@dataclass(frozen=True, slots=True)
class ModelSize:
    """`windows`: one entry a layer, keys visible to a query or None for all; empty means all, in every layer.

    `num_active_params`: parameters one token goes through; all of them without experts.
    `latent_width`: numbers cached a token and layer where attention keeps a latent instead of keys and values (MLA).
    """

    name: str
    num_params: float
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    vocab_size: int
    max_context: int
    num_active_params: float | None = None
    experts: Experts | None = None
    windows: tuple[int | None, ...] = ()
    latent_width: int | None = None

    def __post_init__(self) -> None:
        for field in ("num_params", "num_layers", "num_heads", "num_kv_heads", "head_width", "max_context"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"model {self.name!r}: {field} must be a positive number, got {value!r}")
        if self.experts is not None and not 0 < self.experts.num_chosen < self.experts.num_experts:
            raise ConfigError(f"model {self.name!r}: {self.experts.num_chosen} of {self.experts.num_experts} experts")
        if self.active_params > self.num_params:
            raise ConfigError(f"model {self.name!r}: {self.active_params:g} active of {self.num_params:g} parameters")
        if self.windows and len(self.windows) != self.num_layers:
            raise ConfigError(f"model {self.name!r}: {len(self.windows)} windows for {self.num_layers} layers")

    @property
    def active_params(self) -> float:
        """Parameters one token goes through."""
        return self.num_params if self.num_active_params is None else self.num_active_params

    @property
    def kv_numbers_per_layer(self) -> int:
        """Numbers cached for one token in one layer."""
        return self.latent_width or KEY_AND_VALUE * self.num_kv_heads * self.head_width

    @property
    def kv_numbers_per_token(self) -> int:
        """Numbers cached for one token, before windows save any: 2·layers·kv_heads·head_width."""
        return self.num_layers * self.kv_numbers_per_layer

    def kv_numbers(self, num_tokens: float) -> float:
        """Numbers cached, and read by a query, for a sequence of this length: a window keeps no more than it sees."""
        if not self.windows:
            return num_tokens * self.kv_numbers_per_token
        kept = sum(
            num_layers * min(num_tokens, num_tokens if window is None else window)
            for window, num_layers in Counter(self.windows).items()
        )
        return kept * self.kv_numbers_per_layer

    def params_read(self, num_tokens: float) -> float:
        """Parameters a step of so many tokens reads: with experts, those that any of its tokens chose.

        Choices are taken as independent and even: of an expert's parameters 1 − (1 − chosen/experts)^tokens are read.
        """
        if self.experts is None:
            return self.num_params
        num_experts, num_chosen = self.experts.num_experts, self.experts.num_chosen
        params_per_expert = (self.num_params - self.active_params) / (num_experts - num_chosen)
        touched = 1.0 - math.pow(1.0 - num_chosen / num_experts, num_tokens)
        return self.num_params - num_experts * params_per_expert * (1.0 - touched)

    def attention_flops(self, attended_pairs: float) -> float:
        """Scores and weighted sums: 4 operations a pair, query head and head element, in every layer.

        Windows are not subtracted. With a latent the figures are those of the expanded heads.
        """
        return 4.0 * attended_pairs * self.num_layers * self.num_heads * self.head_width
