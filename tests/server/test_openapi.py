"""The OpenAPI document says what the server does: just inside its limits is served, just outside is refused by name,
and real answers are what it says they are.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import jsonschema
import msgspec
import pytest

from paceline.server import answer_types as answers
from running_server import RunningServer

MESSAGES = [{"role": "user", "content": "a"}]
CHAT = {"model": "scripted", "messages": MESSAGES, "max_tokens": 1}
COMPLETION = {"model": "scripted", "prompt": "a", "max_tokens": 1}
EMBEDDING = {"model": "scripted", "input": "a"}
ROUTES = {
    "ChatCompletionRequest": ("chat/completions", CHAT),
    "CompletionRequest": ("completions", COMPLETION),
    "EmbeddingRequest": ("embeddings", EMBEDDING),
}
# What some fields need beside them to be valid.
BESIDE: dict[str, dict[str, Any]] = {
    "top_logprobs": {"logprobs": True},
    "max_completion_tokens": {"max_tokens": None},
    "min_tokens": {"max_tokens": 5},
}


@pytest.fixture(scope="module")
def document(server: RunningServer) -> dict[str, Any]:
    content: dict[str, Any] = httpx.get(f"{root(server)}/openapi.json").json()
    return content


def root(server: RunningServer) -> str:
    return server.url.removesuffix("/v1")


def test_the_document_is_valid_and_complete(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert referred <= schemas.keys()
    assert document["openapi"] == "3.1.0"


def bounded_fields(document: dict[str, Any]) -> list[tuple[str, str, float, float]]:
    """(schema, field, a value just inside, one just outside) for every number with a limit."""
    cases = []
    for name in ROUTES:
        for field, schema in document["components"]["schemas"][name]["properties"].items():
            step = 1 if "integer" in schema.get("type", ()) else 0.01
            for key, sign in (("minimum", -1), ("maximum", 1)):
                if key in schema:
                    cases.append((name, field, schema[key], schema[key] + sign * step))
            if "exclusiveMinimum" in schema:
                cases.append((name, field, schema["exclusiveMinimum"] + step, schema["exclusiveMinimum"]))
    return cases


def test_limits_are_where_the_document_says(server: RunningServer, document: dict[str, Any]) -> None:
    cases = bounded_fields(document)
    assert len(cases) > 50
    with httpx.Client(base_url=server.url, timeout=20) as client:
        for name, field, inside, outside in cases:
            path, body = ROUTES[name]
            body = body | BESIDE.get(field, {})
            refused = client.post(path, json=body | {field: outside})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, field), (name, field, outside)
            if field != "max_tokens":  # beside the prompt's tokens its limit is lower
                served = client.post(path, json=body | {field: inside})
                assert served.status_code == 200, (name, field, inside, served.text)


def test_lists_and_texts_are_as_long_as_the_document_says(server: RunningServer, document: dict[str, Any]) -> None:
    properties = document["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    sizes = {
        "stop_token_ids": lambda size: [5] * size,
        "logit_bias": lambda size: {str(index): 1 for index in range(size)},
        "cache_salt": lambda size: "x" * size,
        "chat_template_kwargs": lambda size: {f"v{index}": 1 for index in range(size)},
        "messages": lambda size: MESSAGES * size,
    }
    for field, make in sizes.items():
        schema = properties[field]
        (most,) = [schema[key] for key in ("maxItems", "maxProperties", "maxLength") if key in schema]
        refused = server.post("chat/completions", CHAT | {field: make(most + 1)})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
        if field not in ("logit_bias", "messages"):  # 1,024 ids are more than this vocabulary, 4,096 turns its context
            assert server.post("chat/completions", CHAT | {field: make(most)}).status_code == 200, field


def test_neutral_values_and_metadata_are_taken_as_described(server: RunningServer, document: dict[str, Any]) -> None:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        for name, (path, body) in ROUTES.items():
            for field, schema in document["components"]["schemas"][name]["properties"].items():
                if "description" in schema:
                    for value in schema.get("enum", [{"any": ["thing"]}]):
                        assert client.post(path, json=body | {field: value}).is_success, (name, field, value)


REPORTS = {"n": 2, "max_tokens": 3, "return_token_ids": True}
CASES: list[tuple[str, dict[str, Any], type[msgspec.Struct]]] = [
    ("v1/chat/completions", CHAT | REPORTS, answers.ChatCompletion),
    ("v1/chat/completions", CHAT | REPORTS | {"logprobs": True, "top_logprobs": 2}, answers.ChatCompletion),
    ("v1/chat/completions", CHAT | {"prompt_logprobs": 2}, answers.ChatCompletion),
    ("v1/chat/completions", CHAT | {"n": 0}, answers.ErrorAnswer),
    ("v1/completions", COMPLETION | REPORTS, answers.Completion),
    ("v1/completions", COMPLETION | REPORTS | {"logprobs": 2, "echo": True}, answers.Completion),
    ("v1/completions", COMPLETION | {"prompt_logprobs": 0, "max_tokens": 0, "echo": True}, answers.Completion),
    ("v1/completions", COMPLETION | {"model": "other"}, answers.ErrorAnswer),
    ("v1/embeddings", EMBEDDING, answers.EmbeddingList),
    ("v1/embeddings", EMBEDDING | {"encoding_format": "base64", "input": ["a", "b"]}, answers.EmbeddingList),
    ("v1/embeddings", EMBEDDING | {"dimensions": 0}, answers.ErrorAnswer),
    ("tokenize", {"prompt": "a", "return_token_strs": True}, answers.TokenizeAnswer),
    ("detokenize", {"tokens": [5]}, answers.DetokenizeAnswer),
    ("v1/nowhere", {}, answers.ErrorAnswer),
]


@pytest.mark.parametrize(("path", "body", "kind"), CASES)
def test_answers_are_what_the_document_says(
    server: RunningServer, document: dict[str, Any], path: str, body: dict[str, Any], kind: type[msgspec.Struct]
) -> None:
    response = httpx.post(f"{root(server)}/{path}", json=body, timeout=20)
    check_answer(document, response.content, kind)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("v1/models", answers.ModelList),
        ("v1/models/scripted", answers.ModelCard),
        ("v1/models/other", answers.ErrorAnswer),
        ("health", answers.Status),
        ("live", answers.Status),
        ("version", answers.Version),
        ("tokenize", answers.ErrorAnswer),
    ],
)
def test_what_can_be_got_is_what_the_document_says(
    server: RunningServer, document: dict[str, Any], path: str, kind: type[msgspec.Struct]
) -> None:
    check_answer(document, httpx.get(f"{root(server)}/{path}").content, kind)


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("chat/completions", CHAT | REPORTS | {"logprobs": True}, answers.ChatCompletionChunk),
        ("completions", COMPLETION | REPORTS | {"logprobs": 1}, answers.Completion),
        ("completions", COMPLETION | REPORTS | {"echo": True}, answers.Completion),
    ],
)
@pytest.mark.parametrize("options", [None, {"include_usage": True, "continuous_usage_stats": True}])
def test_events_are_what_the_document_says(
    server: RunningServer,
    document: dict[str, Any],
    path: str,
    body: dict[str, Any],
    kind: type[msgspec.Struct],
    options: dict[str, bool] | None,
) -> None:
    response = server.post(path, body | {"stream": True, "stream_options": options})
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        check_answer(document, event.encode(), kind)


def check_answer(document: dict[str, Any], data: bytes, kind: type[msgspec.Struct]) -> None:
    msgspec.json.decode(data, type=kind)
    described = {"$ref": f"#/components/schemas/{kind.__name__}", "components": document["components"]}
    jsonschema.Draft202012Validator(described).validate(json.loads(data))


def test_the_page_loads_nothing_and_names_everything(server: RunningServer, document: dict[str, Any]) -> None:
    response = httpx.get(f"{root(server)}/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not re.search(r"<script|<link|<img|<iframe|https?://|src=|@import|url\(", response.text)
    for path in document["paths"]:
        assert path in response.text
    for name in document["components"]["schemas"]:
        assert f'id="{name}"' in response.text


def test_a_wrong_method_is_told_the_right_one(server: RunningServer) -> None:
    refused = httpx.get(f"{server.url}/completions")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_a_key_is_described_where_one_is_asked_for(
    document: dict[str, Any], start_server: Callable[..., RunningServer]
) -> None:
    assert "security" not in json.dumps(document["paths"])
    guarded = httpx.get(f"{root(start_server({'api_keys': ['secret']}))}/openapi.json").json()
    for path, operations in guarded["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == ("401" in operation["responses"])
            assert ("security" in operation) == (path.startswith("/v1") or "tokenize" in path)
