"""What hardware can do: arithmetic, memory bandwidth, memory. Datasheet figures with their sources, all overridable.

Owns the catalogue. Arithmetic is dense (no sparsity), in bf16 with float32 sums, or fp16 where a part has no bf16.
Bandwidth is that of the device's own memory. Nothing reaches its datasheet; the estimator's efficiency says how much
of it to expect. Memory is bytes: what a vendor prints as "80 GB" is GiB on some parts and GB on others, so each entry
spells its unit.
"""

import math
from dataclasses import dataclass

from paceline.costs.units import GB, GIB
from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Hardware:
    """One card, or one machine. `link_bytes_per_s`: to its peers, in one direction; None where there is no such link.

    `source` says where the figures are from.
    """

    name: str
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: int
    link_bytes_per_s: float | None = None
    source: str = "given by the user"

    def __post_init__(self) -> None:
        figures = {
            "flops_per_s": self.flops_per_s,
            "bytes_per_s": self.bytes_per_s,
            "memory_bytes": self.memory_bytes,
            "link_bytes_per_s": 1.0 if self.link_bytes_per_s is None else self.link_bytes_per_s,
        }
        for figure, value in figures.items():
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"hardware {self.name!r}: {figure} must be a positive number, got {value!r}")

    @property
    def ridge_flops_per_byte(self) -> float:
        """The ridge point: work of higher intensity is bound by arithmetic, of lower by memory."""
        return self.flops_per_s / self.bytes_per_s

    def ridge_batch(self, weight_bytes: float) -> float:
        """Rows at which a decode step turns from reading weights to arithmetic: 2·B/w reaches the ridge point."""
        return self.ridge_flops_per_byte * weight_bytes / 2.0


# Vendors print arithmetic with 2:4 sparsity first, and some print nothing else: half of that is dense.
_NVIDIA = "NVIDIA {} datasheet, dense"
_HALF = "NVIDIA {} datasheet, half of {} TFLOPS with sparsity"
_PAPER = "NVIDIA {} GPU Architecture white paper, dense, float32 sums"
_AMD = "AMD Instinct {} data sheet, dense"
_CARDS = (
    Hardware("H100", 989e12, 3.35e12, 80 * GIB, 450e9, _HALF.format("H100 Tensor Core GPU (SXM)", "1,979")),
    Hardware("H100-PCIe", 756e12, 2.0e12, 80 * GIB, 64e9, _HALF.format("H100 Tensor Core GPU (PCIe)", "1,513")),
    Hardware("H100-NVL", 835e12, 3.9e12, 94 * GB, 300e9, _HALF.format("H100 Tensor Core GPU (NVL)", "1,671")),
    Hardware("H200", 989e12, 4.8e12, 141 * GB, 450e9, _HALF.format("H200 Tensor Core GPU (SXM)", "1,979")),
    Hardware(
        "B200",
        2250e12,
        8.0e12,
        180 * GB,
        900e9,
        "NVIDIA Blackwell Architecture Technical Brief (HGX B200), dense; memory: DGX B200 datasheet, an eighth",
    ),
    Hardware(
        "A100", 312e12, 2.0e12, 80 * GIB, 300e9, _NVIDIA.format("A100 80GB (SXM)") + ", 2,039 GB/s taken as 2.0 TB/s"
    ),
    Hardware("A100-40GB", 312e12, 1.555e12, 40 * GIB, 300e9, _NVIDIA.format("A100 40GB (SXM)")),
    Hardware("V100", 125e12, 0.9e12, 32 * GIB, 150e9, _NVIDIA.format("V100 Tensor Core GPU (SXM2, fp16)")),
    Hardware("L4", 121e12, 0.3e12, 24 * GB, 32e9, _HALF.format("L4 Tensor Core GPU", "242")),
    Hardware("L40S", 362e12, 0.864e12, 48 * GB, 32e9, _NVIDIA.format("L40S")),
    Hardware("A10", 125e12, 0.6e12, 24 * GB, 32e9, _NVIDIA.format("A10 Tensor Core GPU")),
    Hardware("T4", 65e12, 0.32e12, 16 * GB, 16e9, _NVIDIA.format("T4 Tensor Core GPU (fp16)")),
    Hardware("RTX-3090", 71e12, 0.936e12, 24 * GIB, 32e9, _PAPER.format("Ampere GA102")),
    Hardware("RTX-4090", 165.2e12, 1.008e12, 24 * GIB, 32e9, _PAPER.format("Ada")),
    Hardware("RTX-5090", 209.5e12, 1.792e12, 32 * GIB, 64e9, _PAPER.format("RTX Blackwell")),
    Hardware("MI300X", 1307.4e12, 5.3e12, 192 * GB, 448e9, _AMD.format("MI300X")),
    Hardware("MI325X", 1307.4e12, 6.0e12, 256 * GB, 448e9, _AMD.format("MI325X")),
)
CATALOGUE = {card.name: card for card in _CARDS}
_SPELLINGS = {
    "h100sxm": "H100",
    "h100sxm5": "H100",
    "h10080gb": "H100",
    "h200sxm": "H200",
    "a100sxm": "A100",
    "a10080gb": "A100",
    "a100sxm80gb": "A100",
    "4090": "RTX-4090",
    "3090": "RTX-3090",
    "5090": "RTX-5090",
}


def find_hardware(name: str) -> Hardware:
    """The catalogue's entry; case, spaces, dashes and underscores do not matter. Raises ConfigError."""
    key = _letters(name)
    known = {_letters(card): card for card in CATALOGUE} | _SPELLINGS
    if key not in known:
        raise ConfigError(f"hardware {name!r} is not in the catalogue: {', '.join(CATALOGUE)}")
    return CATALOGUE[known[key]]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
