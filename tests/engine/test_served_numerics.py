"""The served model against transformers on the dequantized weights: perplexity, best tokens, greedy answers."""

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from numpy.typing import NDArray

from dequantized_model import transformers_model
from paceline import LLM, GenerationOptions, SamplingParams
from paceline.config import EngineConfig
from paceline.models.resolve import open_checkpoint, resolve

PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
CONTEXT = 2560
MIN_TOKENS = 2000
QUESTIONS = ("What does HTTP stand for?", "What is photosynthesis?", "Give me a tip for learning to cook.")


@cache
def served(chunk_tokens: int) -> LLM:
    return LLM(EngineConfig(max_num_batched_tokens=chunk_tokens, max_num_seqs=1, max_model_len=CONTEXT))


@cache
def reference() -> torch.nn.Module:
    path = resolve("smollm2-135m")
    model: torch.nn.Module = transformers_model(path, open_checkpoint(path).spec)
    return model


@cache
def reference_scores() -> tuple[tuple[int, ...], NDArray[float], NDArray[int]]:
    """Tokens of the text, the reference's logprob of each but the first, and its best token there."""
    tokens = served(2048).text.tokenizer.encode(PROSE.read_text(), add_special_tokens=True)
    with torch.no_grad():
        logits = reference()(torch.tensor([tokens])).logits[0, :-1].double()
    logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens)[1:, None])[:, 0]
    return tuple(tokens), logprobs.numpy(), logits.argmax(-1).numpy()


@pytest.mark.parametrize("chunk_tokens", [1, 16, 2048])
def test_perplexity_and_best_tokens_are_those_of_the_file(chunk_tokens: int) -> None:
    tokens, expected, best = reference_scores()
    assert len(tokens) > MIN_TOKENS
    options = GenerationOptions(max_tokens=0, sampling=SamplingParams(num_prompt_logprobs=1))
    scores = served(chunk_tokens).generate([tokens], options)[0].prompt_scores
    assert [score.token_id for score in scores] == list(tokens[1:])
    perplexity = math.exp(-sum(score.logprob for score in scores) / len(scores))
    reference_perplexity = math.exp(-expected.mean())
    agreement = sum(score.top[0][0] == token for score, token in zip(scores, best, strict=True)) / len(scores)
    print(f"chunk {chunk_tokens}: perplexity {perplexity:.4f} (reference {reference_perplexity:.4f}), {agreement:.2%}")
    assert abs(perplexity / reference_perplexity - 1) <= 0.01
    assert agreement >= 0.97


@pytest.mark.parametrize("question", QUESTIONS)
def test_greedy_answers_begin_as_the_references(question: str) -> None:
    """The first 16 ids of a chat, as `make serve ONCE=1` asks one (its question is the first)."""
    llm = served(2048)
    prompt = llm.text.tokenizer.encode(llm.text.template.render([{"role": "user", "content": question}]), False)
    answer = llm.generate([prompt], GenerationOptions(max_tokens=16, sampling=SamplingParams(temperature=0)))[0]
    ids = torch.tensor([prompt])
    generated = reference().generate(  # type: ignore[operator]
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False, pad_token_id=2, eos_token_id=2
    )
    assert [token.token_id for token in answer.choices[0].tokens] == generated[0, len(prompt) :].tolist()
