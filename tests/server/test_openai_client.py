"""The official openai client drives every route and field of the API against a real server process."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from paceline.server.fields import CHAT, COMPLETION, EMBEDDING
from paceline.server.openapi import OPERATIONS
from running_server import RunningServer
from scripted_text import SCRIPT_TEXT

MODEL = "smollm2-135m"
MESSAGES: list[Any] = [{"role": "user", "content": "Name a colour."}]

# Every field that generation takes, with a value that asks for something.
FIELDS: dict[str, Any] = {
    "model": MODEL, "n": 2, "max_tokens": 6, "min_tokens": 2, "temperature": 0.7, "top_p": 0.9, "top_k": 40,
    "min_p": 0.05, "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1,
    "logit_bias": {"100": -5}, "stop": ["XYZ"], "stop_token_ids": [5], "ignore_eos": True,
    "include_stop_str_in_output": True, "skip_special_tokens": False, "priority": 1, "cache_salt": "me",
    "prompt_logprobs": 1, "return_token_ids": True, "truncate_prompt_tokens": 8, "add_special_tokens": False,
    "stream": False, "stream_options": None, "response_format": {"type": "text"}, "structured_outputs": None,
    "guided_json": None, "guided_regex": None, "guided_choice": None, "guided_grammar": None,
}  # fmt: skip
CHAT_FIELDS = FIELDS | {
    "messages": [*MESSAGES, {"role": "assistant", "content": "The"}], "max_tokens": None, "max_completion_tokens": 6,
    "logprobs": True, "top_logprobs": 2, "add_generation_prompt": False, "continue_final_message": True,
    "chat_template_kwargs": {"enable_thinking": False}, "tools": [], "tool_choice": None, "parallel_tool_calls": None,
    "include_reasoning": True,
}  # fmt: skip
COMPLETION_FIELDS = FIELDS | {"prompt": "One, two,", "echo": True, "logprobs": 2}
EMBEDDING_FIELDS: dict[str, Any] = {
    "model": MODEL, "input": ["a", "b"], "encoding_format": "float", "dimensions": 8, "normalize": True,
    "truncate_prompt_tokens": 4, "add_special_tokens": True, "priority": 1, "cache_salt": "me",
}  # fmt: skip
STREAM = {"stream": True, "stream_options": {"include_usage": True}, "prompt_logprobs": None}


def split(fields: dict[str, Any], method: Callable[..., Any]) -> dict[str, Any]:
    """Fields as arguments of a method of the client: what it has no name for goes into extra_body."""
    known = inspect.signature(method).parameters
    extra = {name: value for name, value in fields.items() if name not in known}
    return {name: value for name, value in fields.items() if name in known} | {"extra_body": extra}


def embed(client: openai.OpenAI) -> list[float]:
    create = client.embeddings.create
    return create(**split(EMBEDDING_FIELDS, create)).data[1].embedding


SERVED: dict[str, Callable[[openai.OpenAI], Any]] = {
    "post /v1/chat/completions": lambda c: c.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1),
    "post /v1/completions": lambda c: c.completions.create(model=MODEL, prompt="a", max_tokens=1),
    "post /v1/embeddings": embed,
    "get /v1/models": lambda c: list(c.models.list()),
    "get /v1/models/{name}": lambda c: c.models.retrieve(MODEL),
    "post /v1/tokenize": lambda c: c.post("/tokenize", body={"prompt": "a"}, cast_to=object),
    "post /v1/detokenize": lambda c: c.post("/detokenize", body={"tokens": [1]}, cast_to=object),
    "post /tokenize": lambda c: at_root(c).post("/tokenize", body={"prompt": "a"}, cast_to=object),
    "post /detokenize": lambda c: at_root(c).post("/detokenize", body={"tokens": [1]}, cast_to=object),
    "post /ping": lambda c: at_root(c).post("/ping", cast_to=object),
} | {
    f"get {path}": lambda c, path=path: at_root(c).get(path, cast_to=object)
    for path in ("/health", "/ready", "/ping", "/live", "/version", "/openapi.json")
} | {
    f"get {path}": lambda c, path=path: at_root(c).get(path, cast_to=str)
    for path in ("/docs", "/metrics")
}  # fmt: skip


def at_root(client: openai.OpenAI) -> openai.OpenAI:
    return client.with_options(base_url=str(client.base_url).removesuffix("v1/"))


@pytest.fixture
def smol_client(smol: RunningServer) -> Iterator[openai.OpenAI]:
    with smol.openai() as client:
        yield client


def test_every_route_is_driven() -> None:
    assert SERVED.keys() == {f"{operation.method} {operation.path}" for operation in OPERATIONS}


@pytest.mark.parametrize("route", SERVED)
def test_the_client_drives_the_route(smol_client: openai.OpenAI, route: str) -> None:
    assert SERVED[route](smol_client)


def test_every_field_is_sent() -> None:
    assert CHAT_FIELDS.keys() == CHAT
    assert COMPLETION_FIELDS.keys() == COMPLETION
    assert EMBEDDING_FIELDS.keys() == EMBEDDING


def test_every_chat_field_at_once(smol_client: openai.OpenAI) -> None:
    create = smol_client.chat.completions.create
    answer = create(**split(CHAT_FIELDS, create))
    assert create(**split(CHAT_FIELDS, create)).choices == answer.choices, "the seed repeats it"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, 12)
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [len(entry.top_logprobs) for entry in choice.logprobs.content] == [2] * 6
        assert choice.model_extra is not None
        assert len(choice.model_extra["token_ids"]) == 6
    assert answer.model_extra is not None
    assert len(answer.model_extra["prompt_token_ids"]) == len(answer.model_extra["prompt_logprobs"]) == 8
    texts = ["", ""]
    usage = None
    for chunk in create(**split(CHAT_FIELDS | STREAM, create)):
        for part in chunk.choices:
            texts[part.index] += part.delta.content or ""
        usage = chunk.usage
    assert texts == [choice.message.content for choice in answer.choices]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (8, 12)


def test_every_completion_field_at_once(smol_client: openai.OpenAI) -> None:
    create = smol_client.completions.create
    answer = create(**split(COMPLETION_FIELDS | {"truncate_prompt_tokens": 3}, create))
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 12)
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.tokens is not None
        assert "".join(choice.logprobs.tokens) == choice.text
        assert len(choice.logprobs.tokens) == 9
    unscored = COMPLETION_FIELDS | STREAM | {"truncate_prompt_tokens": 3, "logprobs": None}
    texts = ["", ""]
    for chunk in create(**split(unscored, create)):
        for part in chunk.choices:
            texts[part.index] += part.text
    assert texts == [choice.text for choice in answer.choices]


def test_a_continued_message_goes_on_from_its_text(smol_client: openai.OpenAI) -> None:
    begun = "The capital of France is"
    messages: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
    answer = smol_client.chat.completions.create(
        model=MODEL,
        messages=[*messages, {"role": "assistant", "content": begun}],
        temperature=0,
        max_tokens=2,
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )
    assert answer.choices[0].message.content == " Paris."


def test_the_clients_own_streaming_helper(client: openai.OpenAI) -> None:
    asked: Any = {"model": "scripted", "messages": MESSAGES, "stop": [", eight"]}
    said = SCRIPT_TEXT[: SCRIPT_TEXT.index(", eight")]
    with client.chat.completions.stream(**asked) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == said
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == (said, "stop")


def test_the_asynchronous_client(server: RunningServer) -> None:
    async def ask(index: int, client: openai.AsyncOpenAI) -> str:
        stream = await client.completions.create(model="scripted", prompt="a", max_tokens=1 + index, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(ask(index, client) for index in range(10)))

    texts = asyncio.run(ask_all())
    assert texts[:5] == [" five", " five,", " five, six", " five, six,", " five, six, sev"]


def test_mistakes_are_the_clients_own_exceptions(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["secret"]}, step_s=0.02, max_queued=1)
    with server.openai(api_key="secret") as client, server.openai(api_key="wrong") as stranger:
        ask = client.completions.create
        with pytest.raises(openai.BadRequestError) as wrong:
            ask(model="scripted", prompt="a", temperature=-1)
        assert (wrong.value.param, wrong.value.code) == ("temperature", "invalid_value")
        with pytest.raises(openai.BadRequestError) as unserved:
            ask(model="scripted", prompt="a", suffix="b")
        assert (unserved.value.param, unserved.value.code) == ("suffix", "unsupported_parameter")
        with pytest.raises(openai.NotFoundError, match="served: 'scripted'"):
            ask(model="other", prompt="a")
        with pytest.raises(openai.AuthenticationError):
            stranger.completions.create(model="scripted", prompt="a")
        with pytest.raises(openai.AuthenticationError):
            stranger.post("/tokenize", body={"prompt": "a"}, cast_to=object)
        running = ask(model="scripted", prompt="a", max_tokens=100, stream=True)
        next(iter(running))
        with pytest.raises(openai.RateLimitError):
            ask(model="scripted", prompt="a")
        running.close()


def test_a_stream_that_breaks_is_an_error_of_the_client(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=0.01, faults={"9": "exit"})
    with server.openai() as client:
        running = client.completions.create(model="scripted", prompt="a", max_tokens=1000, stream=True)
        chunks = iter(running)
        next(chunks)
        with pytest.raises(openai.InternalServerError):
            client.completions.create(model="scripted", prompt=[9], max_tokens=1)
        with pytest.raises(openai.APIError):
            list(chunks)


def test_served_names_are_listed_found_and_answered_to(start_server: Callable[..., RunningServer]) -> None:
    names = ["owner/Model-1", "alias", "a b/c?d#e"]
    server = start_server({"served_model_names": names})
    with server.openai() as client:
        assert [model.id for model in client.models.list()] == names
        for name in names:
            assert client.models.retrieve(name).id == name
            assert client.completions.create(model=name, prompt="a", max_tokens=1).model == name
        with pytest.raises(openai.NotFoundError, match=r"served: 'a b/c\?d#e', 'alias', 'owner/Model-1'"):
            client.models.retrieve("owner/other")


def test_a_served_template_file_is_used(start_server: Callable[..., RunningServer], tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    server = start_server({"chat_template": str(tmp_path / "t.jinja")})
    with server.openai() as client:
        answer = client.chat.completions.create(model="scripted", messages=MESSAGES, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("Name a colour.")
