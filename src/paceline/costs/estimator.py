"""The datasheet estimator: the time of a step by the roofline, from figures anyone can look up.

    time = max(FLOPs / (F·efficiency), bytes / (BW·efficiency))

with FLOPs = 2·P·tokens and bytes = w·P + k·(context tokens). Attention's own arithmetic, activations, launch overhead
and the traffic between cards are left out; the efficiency stands for all of them. Cards that work on one model
together add up: n cards have n times the arithmetic, bandwidth and memory.

Owns these formulas and nothing else. A fit to measured steps is another class (`fitted.py`); they are not blended.
Worked example: Llama-2-7B in bf16, one row on one H100 at efficiency 1 reads 13.5 GB at 3.35 TB/s: 4.0 ms a token.
"""

from dataclasses import dataclass
from math import floor

from paceline.costs.formats import WEIGHT_FORMATS, NumberFormat
from paceline.costs.hardware import Hardware
from paceline.costs.model_size import ModelSize
from paceline.costs.step import StepWork, decode_work, prefill_work
from paceline.errors import ConfigError

DEFAULT_EFFICIENCY = 0.7
BF16 = WEIGHT_FORMATS["bf16"]
MAX_CARDS = 4096


@dataclass(frozen=True, slots=True)
class DatasheetEstimator:
    """A model on hardware. `num_cards`: cards that hold one copy of the model together (tensor parallel).

    `efficiency`: the share of both peaks that is reached.
    """

    model: ModelSize
    hardware: Hardware
    num_cards: int = 1
    weights: NumberFormat = BF16
    kv: NumberFormat = BF16
    efficiency: float = DEFAULT_EFFICIENCY

    def __post_init__(self) -> None:
        if not 0.0 < self.efficiency <= 1.0:
            raise ConfigError(f"efficiency must be above 0 and at most 1, got {self.efficiency!r}")
        if not 1 <= self.num_cards <= MAX_CARDS:
            raise ConfigError(f"cards of a replica must be 1 to {MAX_CARDS}, got {self.num_cards!r}")

    @property
    def weights_bytes(self) -> float:
        """All parameters as stored; of a mixture all experts, since any may be chosen."""
        return self.model.num_params * self.weights.bytes_per_number

    @property
    def kv_bytes_per_token(self) -> float:
        """Before windows save any."""
        return self.model.kv_numbers_per_token * self.kv.bytes_per_number

    @property
    def memory_bytes(self) -> int:
        """Of all cards of the replica."""
        return self.num_cards * self.hardware.memory_bytes

    @property
    def flops_per_s(self) -> float:
        """Arithmetic expected of the replica."""
        return self.num_cards * self.hardware.flops_per_s * self.efficiency

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth expected of the replica."""
        return self.num_cards * self.hardware.bytes_per_s * self.efficiency

    @property
    def ridge_batch(self) -> float:
        """Rows from which a decode step without KV is bound by arithmetic."""
        return (
            self.hardware.ridge_batch(self.weights.bytes_per_number) * self.model.num_params / self.model.active_params
        )

    def kv_bytes(self, num_tokens: float) -> float:
        """KV of one sequence of this length."""
        return self.model.kv_numbers(num_tokens) * self.kv.bytes_per_number

    def flops(self, work: StepWork) -> float:
        """2·P a token."""
        return 2.0 * self.model.active_params * work.num_tokens

    def weights_read(self, work: StepWork) -> float:
        """Bytes of weights that the step reads."""
        return self.model.params_read(work.num_tokens) * self.weights.bytes_per_number

    def kv_read(self, work: StepWork) -> float:
        """Bytes of KV that the step reads. Where layers have windows, the rows are taken as equally long."""
        num_rows = work.num_decode_rows + work.num_prefill_rows
        return num_rows * self.kv_bytes(work.context_tokens / num_rows) if num_rows else 0.0

    def arithmetic_s(self, work: StepWork) -> float:
        """The step's time if arithmetic were all."""
        return self.flops(work) / self.flops_per_s

    def memory_s(self, work: StepWork) -> float:
        """The step's time if memory traffic were all."""
        return (self.weights_read(work) + self.kv_read(work)) / self.bytes_per_s

    def step_s(self, work: StepWork) -> float:
        """The roofline."""
        return max(self.arithmetic_s(work), self.memory_s(work))

    def intensity(self, work: StepWork) -> float:
        """FLOPs a byte."""
        return self.flops(work) / (self.weights_read(work) + self.kv_read(work))

    def prefill_s(self, num_rows: int, num_tokens: int, num_cached: int = 0) -> float:
        """Prompts prefilled together; without a queue this is the TTFT."""
        return self.step_s(prefill_work(num_rows, num_tokens, num_cached))

    def tpot_s(self, num_rows: int, context_tokens: float) -> float:
        """One token for each of the rows, nothing else on the card."""
        return self.step_s(decode_work(num_rows, context_tokens))

    def memory_limit(self, num_tokens: int, workspace_bytes: float = 0.0) -> int:
        """Sequences of this length whose KV fits beside the weights. 0 also when the weights do not fit."""
        free_bytes = self.memory_bytes - self.weights_bytes - workspace_bytes
        return max(0, floor(free_bytes / self.kv_bytes(num_tokens)))
