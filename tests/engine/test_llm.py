"""Generation in process: stop strings, choices, seeds and refusals of `LLM`, on the real model."""

from functools import cache

import pytest

from paceline import LLM, GenerationOptions, Grammar, GrammarKind, SamplingParams
from paceline.config import EngineConfig
from paceline.core.request import FinishReason
from paceline.errors import ContextLengthError, RequestError

GREEDY = SamplingParams(temperature=0)
PROMPT = "One, two, three, four,"


@cache
def llm() -> LLM:
    return LLM(EngineConfig(max_model_len=512, max_num_seqs=8))


def test_a_stop_string_cuts_text_and_tokens_and_leaves_nothing_running() -> None:
    whole = llm().generate([PROMPT], GenerationOptions(24, GREEDY))[0].choices[0]
    stop = whole.text[7:12]
    cut = llm().generate([PROMPT], GenerationOptions(24, GREEDY, stop=(stop,)))[0].choices[0]
    kept = llm().generate([PROMPT], GenerationOptions(24, GREEDY, stop=(stop,), include_stop=True))[0].choices[0]
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert kept.text == cut.text + stop
    assert cut.finish_reason is FinishReason.STOP
    assert cut.tokens == whole.tokens[: len(cut.tokens)]
    assert llm().engine.gauges().num_running == 0


def test_choices_differ_and_the_first_is_the_single_one() -> None:
    sampling = SamplingParams(temperature=1.0, seed=7)
    single = llm().generate([PROMPT], GenerationOptions(16, sampling, is_seeded=True))[0]
    several = llm().generate([PROMPT], GenerationOptions(16, sampling, is_seeded=True, num_choices=3))[0]
    assert several.choices[0] == single.choices[0]
    assert len({choice.text for choice in several.choices}) > 1


def test_unseeded_requests_draw_their_own_seeds() -> None:
    options = GenerationOptions(16, SamplingParams(temperature=1.2))
    assert len({generation.choices[0].text for generation in llm().generate([PROMPT] * 4, options)}) > 1


def test_answers_keep_the_order_of_their_prompts() -> None:
    prompts = [PROMPT, "The capital of", "A recipe for"]
    together = llm().generate(prompts, GenerationOptions(8, GREEDY))
    alone = [llm().generate([prompt], GenerationOptions(8, GREEDY))[0] for prompt in prompts]
    assert [generation.choices for generation in together] == [generation.choices for generation in alone]


def test_a_missing_max_tokens_means_what_the_context_leaves() -> None:
    prompt = [5] * 500
    answer = llm().generate([prompt], GenerationOptions(sampling=GREEDY, ignore_eos=True))[0].choices[0]
    assert (len(answer.tokens), answer.finish_reason) == (12, FinishReason.LENGTH)


def test_prefix_caching_off_shares_nothing_and_answers_the_same() -> None:
    prompt = [11_000 + index % 90 for index in range(200)]
    options = GenerationOptions(8, GREEDY)
    shared = [llm().generate([prompt], options)[0] for _ in range(2)]
    apart_llm = LLM(EngineConfig(max_model_len=512, max_num_seqs=8, enable_prefix_caching=False))
    apart = [apart_llm.generate([prompt], options)[0] for _ in range(2)]
    assert [answer.num_cached_tokens for answer in shared] == [0, 199]
    assert [answer.num_cached_tokens for answer in apart] == [0, 0]
    assert {answer.choices for answer in (*shared, *apart)} == {shared[0].choices}


def test_a_grammar_shapes_the_answer_and_its_end_and_logprobs_change_nothing() -> None:
    grammar = Grammar(GrammarKind.CHOICE, '["the first of two answers", "no"]')
    answers = []
    for num_logprobs in (None, 1):
        sampling = SamplingParams(temperature=0, grammar=grammar, min_tokens=40, num_logprobs=num_logprobs)
        [answer] = llm().generate([PROMPT], GenerationOptions(60, sampling, ignore_eos=True))
        answers.append(answer.choices[0])
    plain, scored = answers
    assert plain.text in ("the first of two answers", "no")
    assert plain.finish_reason is scored.finish_reason is FinishReason.STOP
    assert [token.token_id for token in plain.tokens] == [token.token_id for token in scored.tokens]
    assert plain.tokens[-1].logprob is None
    assert all(token.logprob is not None and len(token.top) == 1 for token in scored.tokens)


def test_an_answer_cut_inside_forced_tokens_has_as_many_as_were_asked_for() -> None:
    grammar = Grammar(GrammarKind.REGEX, "(one two three four five six seven eight nine ten)+")
    for max_tokens in (1, 4, 7):
        [answer] = llm().generate([PROMPT], GenerationOptions(max_tokens, SamplingParams(grammar=grammar)))
        choice = answer.choices[0]
        assert (len(choice.tokens), choice.finish_reason) == (max_tokens, FinishReason.LENGTH)
        assert "one two three four five six seven eight".startswith(choice.text)
    [answer] = llm().generate([[5] * 505], GenerationOptions(sampling=SamplingParams(grammar=grammar)))
    assert len(answer.choices[0].tokens) == 7  # all that the context leaves


def test_what_can_not_be_served_is_refused_and_nothing_is_left_behind() -> None:
    with pytest.raises(ContextLengthError, match="510 tokens and max_tokens is 8, 518 together"):
        llm().generate([PROMPT, [5] * 510], GenerationOptions(8, GREEDY))
    with pytest.raises(RequestError, match="the prompt is empty"):
        llm().generate([[]], GenerationOptions(8, GREEDY))
    bad = GenerationOptions(8, SamplingParams(grammar=Grammar(GrammarKind.REGEX, "(a")))
    with pytest.raises(RequestError, match="unclosed group"):
        llm().generate([PROMPT], bad)
    gauges = llm().engine.gauges()
    assert (gauges.num_running, gauges.num_waiting, gauges.num_blocks_in_use) == (0, 0, 0)
