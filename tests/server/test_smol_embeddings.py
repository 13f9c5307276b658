"""/v1/embeddings of the real model through the whole server, beside a stream."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from running_server import RunningServer

MODEL = "smollm2-135m"
PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
STREAM = {
    "model": MODEL, "prompt": "Once upon a time", "temperature": 0.8, "seed": 5, "max_tokens": 120, "ignore_eos": True,
    "logprobs": 1, "stream": True,
}  # fmt: skip


def texts(count: int) -> list[str]:
    """Pieces of prose of 20 to 400 characters."""
    prose = PROSE.read_text()
    return [prose[101 * index : 101 * index + 20 + 47 * index % 380] for index in range(count)]


def streamed_tokens(server: RunningServer, started: threading.Event) -> list[tuple[str, float]]:
    """(token, logprob) of a sampled stream."""
    tokens: list[tuple[str, float]] = []
    with httpx.stream("POST", f"{server.url}/completions", json=STREAM, timeout=120) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                logprobs = json.loads(line.removeprefix("data: "))["choices"][0]["logprobs"]
                if logprobs:
                    tokens += zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
                    started.set()
    return tokens


def embed(client: openai.OpenAI, inputs: list[str], **options: object) -> list[list[float]]:
    answer = client.embeddings.create(model=MODEL, input=inputs, **options)  # type: ignore[arg-type]
    return [item.embedding for item in answer.data]


@pytest.fixture
def smol_client(smol: RunningServer) -> Iterator[openai.OpenAI]:
    with smol.openai() as client:
        yield client.with_options(timeout=120)


def test_64_inputs_beside_a_stream_change_neither(smol: RunningServer, smol_client: openai.OpenAI) -> None:
    inputs = texts(64)
    alone = streamed_tokens(smol, threading.Event())
    assert len(alone) == STREAM["max_tokens"]
    started, beside = threading.Event(), list[tuple[str, float]]()
    streaming = threading.Thread(target=lambda: beside.extend(streamed_tokens(smol, started)))
    streaming.start()
    assert started.wait(60)
    together = embed(smol_client, inputs)
    was_streaming = streaming.is_alive()
    streaming.join()
    assert was_streaming, "the stream was over before the embeddings were"
    assert beside == alone
    for index in (0, 17, 63):
        assert embed(smol_client, [inputs[index]]) == [together[index]], index


def test_numbers_as_json_are_those_of_base64(smol_client: openai.OpenAI) -> None:
    inputs = texts(2)
    assert embed(smol_client, inputs) == embed(smol_client, inputs, encoding_format="float")


def test_vectors_have_length_one_at_any_width(smol_client: openai.OpenAI) -> None:
    (whole,) = embed(smol_client, ["A cat sat on the mat."])
    (cut,) = embed(smol_client, ["A cat sat on the mat."], dimensions=64)
    assert (len(whole), len(cut)) == (576, 64)
    for vector in (whole, cut):
        assert abs(sum(value * value for value in vector) - 1) < 1e-5
    ratio = cut[0] / whole[0]
    assert cut == pytest.approx([value * ratio for value in whole[:64]], abs=1e-6)


def test_usage_counts_every_input(smol: RunningServer) -> None:
    answer = smol.post("embeddings", {"model": MODEL, "input": [[1, 2, 3], [4, 5]]}).json()
    assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
