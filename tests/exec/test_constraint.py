"""What a row's grammar allows, forces and ends, on a vocabulary small enough to see all of it."""

import json

import pytest
from grammar_rig import (
    END,
    ID,
    OTHER_END,
    TOKENS,
    allowed,
    drain_forced,
    lark,
    regex,
    schema,
    spell,
    tiny_compiler,
)

from paceline.core.request import FinishReason, Grammar, GrammarKind
from paceline.core.spellings import Spellings
from paceline.errors import RequestError
from paceline.exec.byte_pairs import BytePairs
from paceline.exec.constraint import Constraint
from paceline.exec.grammar import MAX_COMPILED, GrammarCompiler

PERSON = schema(
    '{"type":"object","properties":{"name":{"enum":["yes","no"]},"n":{"type":"integer","maximum":9,"minimum":0}},'
    '"required":["name","n"],"additionalProperties":false}'
)


def test_only_what_the_grammar_allows_is_in_the_mask() -> None:
    compiler = tiny_compiler()
    constraint = Constraint(compiler, regex("a+b|yes"), [])
    assert allowed(compiler, constraint) == {b"a", b"ab", b"y", b"ye", b"yes"} & set(TOKENS)
    constraint.take(ID[b"a"])
    assert allowed(compiler, constraint) == {b"a", b"b", b"ab"}


def test_an_end_may_come_where_the_text_matches_and_nowhere_else() -> None:
    compiler = tiny_compiler()
    constraint = Constraint(compiler, regex("[ab]c*"), [])
    assert allowed(compiler, constraint) == {b"a", b"b"}
    constraint.take(ID[b"a"])
    assert allowed(compiler, constraint) == {b"c", TOKENS[END], TOKENS[OTHER_END]}
    constraint.take(OTHER_END)
    assert (constraint.end, constraint.next_forced) == (FinishReason.STOP, None)


def test_a_complete_grammar_forces_the_end_and_nothing_after_it() -> None:
    constraint = Constraint(tiny_compiler(), lark('start: "yes" | "no"'), [])
    constraint.take(ID[b"no"])
    assert constraint.next_forced == END
    constraint.take(END)
    assert (constraint.end, constraint.next_forced) == (FinishReason.STOP, None)


def test_forced_tokens_stop_where_the_model_may_spell_on() -> None:
    """After the key's name the quote is certain, but not whether its token ends there: '"', '":' and '":"' all fit."""
    compiler = tiny_compiler()
    constraint = Constraint(compiler, PERSON, [])
    assert drain_forced(constraint) == b'{"name'
    assert allowed(compiler, constraint) == {b'"', b'":', b'":"'}
    constraint.take(ID[b'":"'])
    assert allowed(compiler, constraint) == {b"y", b"n", b"yes", b"no"}
    constraint.take(ID[b"yes"])
    assert drain_forced(constraint).startswith(b'","n')


def walk(compiler: GrammarCompiler, at_once: bool) -> list[int]:
    """An output of PERSON, always taking the lowest id that is allowed."""
    constraint, outputs = Constraint(compiler, PERSON, []), []
    while constraint.end is None or constraint.next_forced is not None:
        if constraint.next_forced is None:
            choices = allowed(compiler, constraint)
            token = min(TOKENS.index(spelling) for spelling in choices)
            constraint.take(token)
            outputs.append(token)
        elif at_once:
            outputs += constraint.take_forced(10**6)
        else:
            outputs.append(constraint.next_forced)
            constraint.take(outputs[-1])
    return outputs


def test_outputs_are_the_same_whether_forced_tokens_come_at_once_or_one_by_one() -> None:
    compiler = tiny_compiler()
    outputs = walk(compiler, at_once=True)
    assert outputs == walk(compiler, at_once=False)
    assert b"".join(TOKENS[token] for token in outputs) == b'{"name":"no","n":0}<end>'


def test_a_row_that_comes_back_is_where_it_was_after_any_of_its_outputs() -> None:
    compiler = tiny_compiler()
    outputs = walk(compiler, at_once=False)
    constraint = Constraint(compiler, PERSON, [])
    for count, token in enumerate(outputs):
        again = Constraint(compiler, PERSON, outputs[:count])
        assert again.next_forced == constraint.next_forced
        assert again.end == constraint.end
        if constraint.next_forced is None:
            assert allowed(compiler, again) == allowed(compiler, constraint)
        constraint.take(token)


def test_special_tokens_and_ids_without_a_token_are_never_text() -> None:
    compiler = tiny_compiler()
    constraint = Constraint(compiler, regex("(?s:.*)"), [])
    everything = allowed(compiler, constraint)
    assert TOKENS[2] not in everything
    assert b" the" in everything


def test_a_grammar_that_gives_out_ends_the_row_with_an_error() -> None:
    """A state that forces text without end passes the library's limits."""
    constraint = Constraint(tiny_compiler(), lark('start: "x" | "y" rest\nrest: "ab" rest'), [])
    constraint.take(ID[b"y"])
    drain_forced(constraint)
    assert constraint.end is FinishReason.ERROR


@pytest.mark.parametrize(
    ("grammar", "complaint"),
    [
        (schema('{"type":"integer","minimum":5,"maximum":1}'), r"minimum \(5\) is greater than maximum \(1\)"),
        (schema('{"type":"array","uniqueItems":true}'), "uniqueItems"),
        (schema("[]"), "object"),
        (regex("(a"), "unclosed group"),
        (regex("(?=a)b"), "look-ahead"),
        (lark("start: foo"), 'unknown name: "foo"'),
        (lark("start: start"), "."),
        (lark('start: "ab" start'), "."),
    ],
    ids=lambda value: getattr(value, "text", "")[:20],
)
def test_what_can_not_be_compiled_is_refused_under_the_name_of_its_field(grammar: Grammar, complaint: str) -> None:
    compiler = tiny_compiler()
    for _ in range(2):  # the second time from memory
        with pytest.raises(RequestError, match=complaint) as refused:
            compiler.matcher(Grammar(grammar.kind, grammar.text, "response_format"))
        assert refused.value.param == "response_format"
        assert len(refused.value.message) < 400
        assert compiler.holds(grammar)


def test_a_schema_can_not_ask_for_what_is_decided_here() -> None:
    compiler = tiny_compiler()
    text = '{"type":"array","items":{"const":1},"x-guidance":{"whitespace_flexible":true,"lenient":true}%s}'
    constraint = Constraint(compiler, schema(text % ""), spell([b"["]))
    assert allowed(compiler, constraint) == {b"1", b"]"}
    with pytest.raises(RequestError, match="not"):
        compiler.matcher(schema(text % ',"not":{}'))


def test_choices_are_texts_not_patterns() -> None:
    compiler = tiny_compiler()
    for text in ('a"b', "a\\n", ".*", "é日", "line\nline"):
        constraint = Constraint(compiler, Grammar(GrammarKind.CHOICE, json.dumps(["other", text])), [])
        constraint.take(ID[text.encode()[:1]])
        assert drain_forced(constraint) == text.encode()[1:] + b"<end>"


def test_the_least_recently_used_grammars_are_forgotten() -> None:
    compiler = tiny_compiler()
    for count in range(MAX_COMPILED + 1):
        compiler.matcher(regex(f"a{{{count + 1}}}"))
        compiler.matcher(regex("a{1}"))
    assert compiler.holds(regex("a{1}"))
    assert not compiler.holds(regex("a{2}"))
    assert compiler.holds(regex(f"a{{{MAX_COMPILED + 1}}}"))


def test_a_tokenizer_without_an_end_token_serves_no_grammar() -> None:
    compiler = GrammarCompiler(4)
    compiler.learn_spellings(Spellings((b"a", b"b"), (), ()))
    with pytest.raises(RequestError, match="no token that ends"):
        compiler.matcher(regex("a"))


def test_merges_come_in_the_order_of_ids_and_never_across_words() -> None:
    spellings = (b"a", b"b", b" ", b"bb", b"ab", b"abb", b" a", b"b a")
    pairs = BytePairs(Spellings((*spellings, b"abab"), (), (8,)))
    assert pairs.encode(b"abb") == [5]  # a|bb, then abb
    assert pairs.encode(b"ab a") == [4, 6]  # a word begins with its space, though "b a" is a token
    assert pairs.encode(b"abab") == [4, 4]  # the special token is no text
    assert pairs.encode(b"a?b") == [0, 1]  # what no token spells is left out
