"""Formats that published configs state: a plan of an AWQ repository is not one of its bf16 original."""

import pytest

from paceline.costs.config_format import format_from_config
from paceline.costs.config_size import size_from_config
from published_configs import LLAMA_3_8B

PACKED = {"num_bits": 4, "group_size": 128, "type": "int"}


@pytest.mark.parametrize(
    ("quantization", "gigabytes"),
    [
        # 6.98e9 numbers at 4.156 bits and 1.05e9 at 16: published AWQ files have 5.7 GB.
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 5.73),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 9.08),
        ({"quant_method": "fp8", "activation_scheme": "static"}, 9.08),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": PACKED}}}, 5.73),
    ],
)
def test_the_stored_format_is_read_and_the_rest_stays_bf16(quantization: object, gigabytes: float) -> None:
    values = {**LLAMA_3_8B, "quantization_config": quantization}
    found = format_from_config(values, "here")
    assert found is not None
    assert found.bytes_per_number * size_from_config(values, "here").num_params == pytest.approx(
        gigabytes * 1e9, rel=0.005
    )


@pytest.mark.parametrize("quantization", [None, {}, {"quant_method": "abacus"}, {"quant_method": "awq", "bits": 4000}])
def test_what_is_not_known_is_not_guessed(quantization: object) -> None:
    assert format_from_config({**LLAMA_3_8B, "quantization_config": quantization}, "here") is None
