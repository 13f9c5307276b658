"""Structured output on the real model, through the whole server. Field cases by their numbers."""

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import httpx
import jsonschema
import pytest

from paceline.text.model_text import load_model_text
from running_server import RunningServer

MODEL = "smollm2-135m"
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Give an example in JSON."}], "max_tokens": 60}
WHITE_SPACE = re.compile(r"[ \t\r\n]{9,}")
STRING = re.compile(r'"(?:[^"\\]|\\.)*("|$)')


def ask(server: RunningServer, **fields: Any) -> dict[str, Any]:
    """The first choice of a chat."""
    response = httpx.post(f"{server.url}/chat/completions", json=ASK | fields, timeout=60)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def refusal(server: RunningServer, **fields: Any) -> dict[str, Any]:
    response = httpx.post(f"{server.url}/chat/completions", json=ASK | fields, timeout=60)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def record(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def seeds(server: RunningServer, count: int, **fields: Any) -> list[dict[str, Any]]:
    """The choices of `count` seeds, asked for together."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda seed: ask(server, seed=seed, **fields), range(count)))


def test_the_openai_client_gets_json_that_fits_streamed_and_whole(smol: RunningServer) -> None:
    schema = record({"city": {"type": "string", "maxLength": 20}, "sunny": {"type": "boolean"}})
    with smol.openai() as client:
        whole = client.chat.completions.create(**ASK, seed=3, response_format=json_schema(schema))
        stream = client.chat.completions.create(**ASK, seed=3, response_format=json_schema(schema), stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(text), schema)


def test_every_kind_of_wish_is_followed(smol: RunningServer) -> None:
    ipv4 = r"(\d{1,3}\.){3}\d{1,3}"
    assert ask(smol, structured_outputs={"choice": ["red", "green"]})["message"]["content"] in ("red", "green")
    assert re.fullmatch(ipv4, ask(smol, structured_outputs={"regex": ipv4})["message"]["content"])
    lark = 'start: "The answer is " NUMBER "."\nNUMBER: /[1-9][0-9]?/'
    assert re.fullmatch(r"The answer is [1-9]\d?\.", ask(smol, guided_grammar=lark)["message"]["content"])
    found = ask(smol, response_format={"type": "json_object"}, seed=1, max_tokens=400)
    if found["finish_reason"] == "stop":
        assert isinstance(json.loads(found["message"]["content"]), dict)


def test_logprobs_of_forced_tokens_are_real_and_change_nothing(smol: RunningServer) -> None:
    fields = {"response_format": json_schema(record({"name": {"enum": ["Ada", "Grace"]}})), "seed": 5}
    plain, scored = ask(smol, **fields), ask(smol, **fields, logprobs=True, top_logprobs=2)
    assert plain["message"] == scored["message"]
    content = scored["logprobs"]["content"]
    assert "".join(token["token"] for token in content) == plain["message"]["content"]
    assert len({token["logprob"] for token in content}) > 2
    assert all(token["logprob"] <= token["top_logprobs"][0]["logprob"] for token in content)


def test_min_tokens_and_ignore_eos_do_not_keep_a_complete_answer_open(smol: RunningServer) -> None:
    schema = json_schema(record({"a": {"enum": [1, 2]}}))
    for fields in ({"min_tokens": 50}, {"ignore_eos": True}, {"min_tokens": 50, "ignore_eos": True}):
        found = ask(smol, response_format=schema, **fields)
        assert found["finish_reason"] == "stop"
        assert json.loads(found["message"]["content"]) in ({"a": 1}, {"a": 2})
    # Where the grammar can go on, min_tokens keeps the end away.
    found = ask(smol, structured_outputs={"regex": "[a-z]*"}, min_tokens=20, max_tokens=30, seed=2)
    assert len(load_model_text(MODEL).tokenizer.encode(found["message"]["content"], add_special_tokens=False)) >= 10


def test_b043_white_space_can_not_run_on(smol: RunningServer) -> None:
    tokenizer = load_model_text(MODEL).tokenizer
    blanks = [i for i in range(tokenizer.vocab_size) if (text := tokenizer.token_text(i)) and not text.strip(" \t\r\n")]
    assert len(blanks) > 20
    schema = record({"a": {"type": "string"}, "b": {"type": "integer"}})
    for seed in range(3):
        found = ask(smol, response_format=json_schema(schema), max_tokens=200, seed=seed,
                    logit_bias=dict.fromkeys(map(str, blanks), 100))  # fmt: skip
        assert not WHITE_SPACE.search(STRING.sub('""', found["message"]["content"]))
    # Inside a string white space is text, and with this bias has no end; where it is bounded, the object closes.
    schema = record({"a": {"type": "string", "maxLength": 30}, "b": {"type": "integer"}})
    for seed in range(5):
        found = ask(smol, response_format=json_schema(schema), max_tokens=200, seed=seed,
                    logit_bias=dict.fromkeys(map(str, blanks), 100))  # fmt: skip
        assert found["finish_reason"] == "stop"
        jsonschema.validate(json.loads(found["message"]["content"]), schema)


BOUNDS: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 0, "maximum": 20000000000},
    {"type": "integer", "minimum": 0, "maximum": 9223372036854775808},
    {"type": "number", "minimum": -1e30, "maximum": 3},
    {"type": "integer", "minimum": -1e30, "maximum": 3},
    {"type": "number", "exclusiveMinimum": 0.5, "maximum": 2},
    {"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 30},
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: json.dumps(bounds)[19:])
def test_b045_numeric_bounds_are_honoured(smol: RunningServer, bounds: dict[str, Any]) -> None:
    for found in seeds(smol, 20, response_format=json_schema(record({"n": bounds})), temperature=1):
        if found["finish_reason"] == "length":  # digits after the point have no end
            continue
        number = json.loads(found["message"]["content"], parse_float=Decimal, parse_int=Decimal)["n"]
        assert Decimal(bounds.get("minimum", "-inf")) <= number <= Decimal(bounds.get("maximum", "inf"))
        assert number > Decimal(bounds.get("exclusiveMinimum", "-inf"))
        assert number % Decimal(str(bounds.get("multipleOf", number or 1))) == 0
        assert bounds["type"] == "number" or number == int(number)


def test_b045_an_impossible_range_is_refused_and_a_stream_goes_on(smol: RunningServer) -> None:
    with RunningStream(smol) as tokens:
        for bounds, words in (
            ({"minimum": 5, "maximum": 1}, "properties.n: no number"),
            ({"minimum": 1e30}, "properties.n.minimum"),
            ({"multipleOf": 0}, "n"),
        ):
            error = refusal(smol, response_format=json_schema(record({"n": {"type": "integer"} | bounds})))
            assert error["param"].startswith("response_format")
            assert words in error["message"]
        before = len(tokens)
        time.sleep(0.3)
        assert len(tokens) > before


class RunningStream:
    """A long stream beside the test; its text deltas arrive in the list that `with` gives."""

    def __init__(self, server: RunningServer) -> None:
        self._server, self._deltas, self._stop = server, list[str](), threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> list[str]:
        self._thread.start()
        while not self._deltas:
            time.sleep(0.01)
        return self._deltas

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        body = ASK | {"stream": True, "max_tokens": 2000, "ignore_eos": True}
        with httpx.stream("POST", f"{self._server.url}/chat/completions", json=body, timeout=60) as response:
            for line in self._lines(response):
                self._deltas.append(line)

    def _lines(self, response: httpx.Response) -> Iterator[str]:
        for line in response.iter_lines():
            if self._stop.is_set():
                return
            if line:
                yield line


PATTERNS = ["cat|dog", "^cat|dog$", r"\S", r"^\d{3}$", "é+", "^a.b$"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_b047_a_pattern_means_what_re_search_says(smol: RunningServer, pattern: str) -> None:
    schema = record({"v": {"type": "string", "pattern": pattern, "maxLength": 20}})
    values = []
    for found in seeds(smol, 20, response_format=json_schema(schema), temperature=1):
        if found["finish_reason"] == "stop":
            values.append(json.loads(found["message"]["content"])["v"])
    assert len(values) >= 15
    assert all(re.search(pattern, value) for value in values), values
    if pattern == r"^\d{3}$":
        assert all(len(value) == 3 for value in values)
    if pattern == "^a.b$":
        assert all(len(value) == 3 and "\n" not in value for value in values)


def test_b041_bodies_validate_and_repeat_in_any_company(smol: RunningServer) -> None:
    """The case without drafts: repeated strings, a boolean before a string, an example quoted in the prompt."""
    schema = record({"item": {"type": "string", "maxLength": 16}, "again": {"type": "string", "maxLength": 16},
                     "ok": {"type": "boolean"}, "note": {"type": "string", "maxLength": 16}})  # fmt: skip
    example = '{"item": "blue box", "again": "blue box", "ok": true, "note": "blue box"}'

    def body(case: int) -> dict[str, Any]:
        question = f"Describe thing {case // 2} like this: {example}"
        return {"messages": [{"role": "user", "content": question}], "max_tokens": 120, "seed": case,
                "temperature": 0 if case % 2 else 0.8, "response_format": json_schema(schema)}  # fmt: skip

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda case: ask(smol, **body(case)), range(24)))
    for found in together:
        assert found["finish_reason"] == "stop"
        jsonschema.validate(json.loads(found["message"]["content"]), schema)
    for case in (0, 5, 12, 19):
        assert ask(smol, **body(case))["message"] == together[case]["message"]


def test_a_bad_grammar_names_its_field(smol: RunningServer) -> None:
    assert refusal(smol, structured_outputs={"regex": "(a"})["param"] == "structured_outputs.regex"
    assert refusal(smol, guided_grammar="start: foo")["param"] == "guided_grammar"
    error = refusal(smol, response_format=json_schema({"type": "array", "uniqueItems": True}))
    assert (error["param"], error["code"]) == ("response_format", "invalid_value")
    assert "uniqueItems" in error["message"]


@pytest.mark.parametrize("choices", [["a\u0004b"], ["xa\u0004", "xb\u0004"]])
def test_a_text_the_vocabulary_cannot_spell_is_the_requests_fault(smol: RunningServer, choices: list[str]) -> None:
    """No token of SmolLM2 holds the byte 4. Found when it is compiled, or where two ways have led to it."""
    assert refusal(smol, structured_outputs={"choice": choices})["param"] == "structured_outputs.choice"
