"""The format that a config.json says its weights are stored in: AWQ, GPTQ, fp8, MXFP4, compressed-tensors.

Embeddings and the head stay in bf16 in all of these, which a small model with a large vocabulary feels.
"""

from collections.abc import Mapping

from paceline.costs.config_size import embedding_params, size_from_config
from paceline.costs.formats import WEIGHT_FORMATS, NumberFormat

KEPT_BYTES = WEIGHT_FORMATS["bf16"].bytes_per_number
SCALE_BYTES = 2.0
BY_METHOD = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}


def format_from_config(values: Mapping[str, object], name: str) -> NumberFormat | None:
    """The stored format, the numbers kept in bf16 counted in; None where the config states none that is known."""
    quantization = values.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    method = str(quantization.get("quant_method", ""))
    stored = _stored_bytes(method, quantization)
    if stored is None:
        return None
    num_params, num_kept = size_from_config(values, name).num_params, embedding_params(values, name)
    average = (stored * (num_params - num_kept) + KEPT_BYTES * num_kept) / num_params
    return NumberFormat(method, average, f"{stored:.4g} bytes; embeddings and head {KEPT_BYTES:g}")


def _stored_bytes(method: str, quantization: Mapping[str, object]) -> float | None:
    """Bytes a quantized number takes, its share of scale and zero point included."""
    if method in BY_METHOD:
        return WEIGHT_FORMATS[BY_METHOD[method]].bytes_per_number
    if method in ("awq", "gptq"):
        return _grouped(quantization.get("bits", 4), quantization.get("group_size", 128))
    groups = quantization.get("config_groups")
    if method != "compressed-tensors" or not isinstance(groups, Mapping):
        return None
    weights = next((group.get("weights") for group in groups.values() if isinstance(group, Mapping)), None)
    if not isinstance(weights, Mapping):
        return None
    return _grouped(weights.get("num_bits"), weights.get("group_size"))


def _grouped(bits: object, group_size: object) -> float | None:
    """Bits of a number, and for each group a 16-bit scale and a zero point; one group a row counts as none."""
    if not isinstance(bits, int) or not 2 <= bits <= 16:
        return None
    if not isinstance(group_size, int) or group_size < 1:
        return bits / 8
    return bits / 8 + (SCALE_BYTES + bits / 8) / group_size
