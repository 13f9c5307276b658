"""Log probabilities as clients get them; the scripted engine's are a function of the token id."""

import openai
import pytest

from running_server import RunningServer
from scripted_engine import logprob_of
from scripted_text import SCRIPT, WORD_IDS, byte_ids

PROMPT = "\n1. Answer: Yés"


def test_b015_scoring_a_prompt(client: openai.OpenAI, server: RunningServer) -> None:
    ids = byte_ids(PROMPT)
    for max_tokens in (0, 3):
        answer = client.completions.create(
            model="scripted", prompt=PROMPT, echo=True, logprobs=1, max_tokens=max_tokens
        )
        choice = answer.choices[0]
        assert choice.text == PROMPT + " five, six"[: [0, 0, 0, 10][max_tokens]]
        assert answer.usage is not None
        assert (answer.usage.completion_tokens, choice.finish_reason) == (max_tokens, "length")
        logprobs = choice.logprobs
        assert logprobs is not None
        assert logprobs.tokens is not None
        assert logprobs.text_offset is not None
        assert logprobs.token_logprobs == [None, *map(logprob_of, [*ids[1:], *SCRIPT[:max_tokens]])]
        assert len(logprobs.tokens) == answer.usage.prompt_tokens + max_tokens
        assert "".join(logprobs.tokens) == choice.text
        assert logprobs.text_offset == [len("".join(logprobs.tokens[:i])) for i in range(len(logprobs.tokens))]
        assert logprobs.top_logprobs is not None
        assert logprobs.top_logprobs[0] is None
        assert logprobs.top_logprobs[1] == {"1": logprob_of(ids[1])}
    for path, body in (
        ("completions", {"model": "scripted", "prompt": PROMPT, "max_tokens": 0}),
        ("chat/completions", {"model": "scripted", "messages": [{"role": "user", "content": "a"}], "max_tokens": 0}),
    ):
        refused = server.post(path, body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_tokens")


def test_chat_logprobs_show_each_token_with_its_bytes(client: openai.OpenAI) -> None:
    ask = {
        "model": "scripted", "messages": [{"role": "user", "content": "a"}], "max_tokens": len(SCRIPT),
        "logprobs": True, "top_logprobs": 2,
    }  # fmt: skip
    content = client.chat.completions.create(**ask).choices[0].logprobs.content
    assert [entry.logprob for entry in content] == [logprob_of(token_id) for token_id in SCRIPT]
    assert (content[0].token, content[0].bytes) == (" five", list(b" five"))
    assert [alternative.token for alternative in content[0].top_logprobs] == [" five", ","]
    assert b"".join(bytes(entry.bytes) for entry in content).decode().endswith("Yés 日本")
    streamed = [
        entry
        for chunk in client.chat.completions.create(**ask, stream=True)
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert streamed == content


@pytest.mark.parametrize("is_streamed", [False, True])
def test_logprobs_do_not_tell_what_a_stop_string_cut(client: openai.OpenAI, is_streamed: bool) -> None:
    ask = {"model": "scripted", "prompt": "a", "max_tokens": 20, "logprobs": 1, "stop": ["en, eig"]}
    tokens: list[str] = []
    answers = client.completions.create(**ask, stream=True) if is_streamed else [client.completions.create(**ask)]
    for answer in answers:
        tokens += answer.choices[0].logprobs.tokens
    assert tokens == [" five", ",", " six", ",", " sev"]


def test_prompt_logprobs_come_as_in_vllm(client: openai.OpenAI) -> None:
    ids = byte_ids("abc")
    answer = client.completions.create(model="scripted", prompt="abc", max_tokens=1, extra_body={"prompt_logprobs": 1})
    expected = [
        None,
        *(
            {str(i): {"logprob": logprob_of(i), "rank": 1, "decoded_token": text}}
            for i, text in zip(ids[1:], "bc", strict=True)
        ),
    ]
    assert answer.choices[0].model_extra is not None
    assert answer.choices[0].model_extra["prompt_logprobs"] == expected


def test_completion_offsets_go_on_through_a_stream(client: openai.OpenAI) -> None:
    chunks = client.completions.create(model="scripted", prompt="a", max_tokens=4, logprobs=0, stream=True)
    offsets = [offset for chunk in chunks for offset in chunk.choices[0].logprobs.text_offset]
    assert offsets == [0, 5, 6, 10]
    assert WORD_IDS[" five"] == SCRIPT[0]
