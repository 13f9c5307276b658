"""Sampling defaults: the request's value, else the model's own, else the built-in one; and what the files may hold."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.config import EngineConfig, ServeConfig
from paceline.core.request import SamplingParams
from paceline.engine.contract import EngineLimits
from paceline.errors import CheckpointError, ConfigError
from paceline.server.protocol import parse_chat, parse_completion
from paceline.text.defaults import BUILT_IN, SamplingDefaults, folder_defaults, gguf_defaults
from paceline.text.model_text import load_model_text
from running_server import RunningServer, serve_model
from tiny_chat_model import save_chat_model

FACTS = EngineLimits(64, 256, 16, 8, 300, "none", 1)
MODELS = SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95, min_p=0.1, repetition_penalty=1.1)
VALUES = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1}
OTHERS = {"temperature": 0.0, "top_k": 7, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


def sampling(is_chat: bool, defaults: SamplingDefaults, **fields: Any) -> SamplingParams:
    if is_chat:
        body = {"model": "m", "messages": [{"role": "user", "content": "a"}]} | fields
        return parse_chat(json.dumps(body).encode(), FACTS, defaults).options.sampling
    return parse_completion(
        json.dumps({"model": "m", "prompt": "a"} | fields).encode(), FACTS, defaults
    ).options.sampling


@pytest.mark.parametrize("is_chat", [True, False])
def test_the_request_wins_over_the_model_and_the_model_over_what_is_built_in(is_chat: bool) -> None:
    def values(found: SamplingParams) -> dict[str, Any]:
        return {name: getattr(found, name) for name in VALUES}

    assert sampling(is_chat, BUILT_IN) == SamplingParams()
    assert values(sampling(is_chat, MODELS)) == VALUES
    assert values(sampling(is_chat, MODELS, **dict.fromkeys(VALUES))) == VALUES, "null is absent"
    assert values(sampling(is_chat, MODELS, **OTHERS)) == OTHERS
    assert values(sampling(is_chat, MODELS, top_k=-1)) == VALUES | {"top_k": None}
    assert sampling(is_chat, SamplingDefaults(top_k=0)).top_k is None


def test_a_folder_gives_its_defaults(tmp_path: Path) -> None:
    assert folder_defaults(tmp_path) == BUILT_IN
    others = {"do_sample": False, "max_length": 20, "eos_token_id": 1, "top_p": None, "transformers_version": "4"}
    (tmp_path / "generation_config.json").write_text(json.dumps(others))
    assert folder_defaults(tmp_path) == BUILT_IN
    (tmp_path / "generation_config.json").write_text(json.dumps(others | VALUES))
    assert folder_defaults(tmp_path) == MODELS


def test_a_gguf_file_gives_its_defaults() -> None:
    metadata = {
        "general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.top_p": 0.95,
        "general.sampling.min_p": 0.1, "general.sampling.penalty_repeat": 1.1, "general.sampling.mirostat": 2,
    }  # fmt: skip
    assert gguf_defaults(metadata) == MODELS
    assert gguf_defaults({}) == BUILT_IN
    assert load_model_text("smollm2-135m").defaults == BUILT_IN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", "hot"), ("temperature", float("nan")), ("temperature", 101),
        ("temperature", True), ("top_k", 1.5), ("top_k", -2), ("top_k", 2**31), ("top_p", 0), ("top_p", 1.1),
        ("top_p", [1]), ("min_p", -1), ("min_p", 2), ("repetition_penalty", 0), ("repetition_penalty", float("inf")),
    ],
)  # fmt: skip
def test_a_default_no_request_may_have_ends_the_start(tmp_path: Path, name: str, value: Any) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({name: value}))
    with pytest.raises(CheckpointError, match=f"generation_config.json: {name} is .*--generation-config none"):
        folder_defaults(tmp_path)


def test_a_wrong_choice_of_defaults_is_named() -> None:
    with pytest.raises(ConfigError, match="--generation-config must be one of auto, none, vllm, got"):
        ServeConfig(EngineConfig(), generation_config="./x")


Server = Callable[..., RunningServer]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves a tiny model whose own defaults make sampling greedy, with further flags."""
    folder = save_chat_model(tmp_path_factory.mktemp("greedy"))
    (folder / "generation_config.json").write_text(json.dumps({"top_k": 1, "temperature": 0.5}))
    started = []

    def start(*flags: str) -> RunningServer:
        started.append(serve_model(str(folder), "--served-model-name", "tiny", "--kv-memory", "16MiB", *flags))
        return started[-1]

    yield start
    for server in started:
        assert server.stop() == 0


def texts(server: RunningServer, **fields: Any) -> set[str]:
    """What four answers without a seed say."""
    asked = {"model": "tiny", "prompt": "Hello", "max_tokens": 24, "n": 4, "ignore_eos": True} | fields
    return {choice["text"] for choice in server.post("completions", asked).json()["choices"]}


def test_a_server_samples_as_its_model_says(serve: Server) -> None:
    server = serve()
    (told,) = [line for line in server.summary if "sampling" in line]
    assert "temperature 0.5, top_k 1 (the model's" in told
    assert len(texts(server)) == 1
    assert texts(server) == texts(server, temperature=0)
    assert len(texts(server, top_k=-1, temperature=1.0)) == 4


@pytest.mark.parametrize("choice", ["none", "vllm"])
def test_a_server_samples_as_ever_when_told_to(serve: Server, choice: str) -> None:
    server = serve("--generation-config", choice)
    (told,) = [line for line in server.summary if "sampling" in line]
    assert told.endswith("built in")
    assert len(texts(server)) == 4
