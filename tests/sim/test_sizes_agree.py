"""The planner and the engine count the same: KV bytes of a token, and parameters, of models that both read."""

import pytest

from paceline.costs.config_size import size_from_config
from paceline.costs.known_models import find_model
from paceline.models.config_json import spec_from_config
from paceline.models.gguf import read_gguf
from paceline.models.gguf_metadata import spec_from_metadata
from paceline.models.resolve import resolve
from paceline.models.spec import ModelSpec
from paceline.sim.named_model import size_from_gguf
from published_configs import LLAMA_3_8B, MISTRAL_SMALL


def params(spec: ModelSpec) -> int:
    return sum(rows * columns for rows, columns in spec.tensor_shapes().values())


@pytest.mark.parametrize("config", [LLAMA_3_8B, MISTRAL_SMALL])
def test_a_config_means_the_same_to_both(config: dict[str, object]) -> None:
    size, spec = size_from_config(config, "here"), spec_from_config(config, "here")
    assert size.kv_numbers_per_token == 2 * spec.num_layers * spec.num_kv_heads * spec.head_width
    assert size.num_params == pytest.approx(params(spec), rel=1e-3)
    assert size.max_context == spec.max_context


def test_the_built_in_model_is_what_its_file_says() -> None:
    file = read_gguf(resolve("smollm2-135m"))
    size, stored_as = size_from_gguf(file, "smollm2-135m")
    spec, known = spec_from_metadata(file), find_model("smollm2-135m")
    assert size.num_params == params(spec)
    assert size.kv_numbers_per_token == 2 * spec.num_layers * spec.num_kv_heads * spec.head_width
    assert known.kv_numbers_per_token == size.kv_numbers_per_token
    assert known.num_params == pytest.approx(size.num_params, rel=1e-3)
    assert (known.max_context, known.vocab_size) == (size.max_context, size.vocab_size)
    # Q4_1 has 5 bits a number; the embedding has 8.5.
    assert 20 / 32 < stored_as.bytes_per_number < 34 / 32
