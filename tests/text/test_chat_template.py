"""Chat templates render what models were trained on, and a hostile one ends."""

import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest
from sentence_pieces import sentence_piece_metadata

from paceline.errors import CheckpointError, RequestError
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.template import ChatTemplate, folder_template, gguf_template
from paceline.text.tokenizer import Tokenizer

USER = [{"role": "user", "content": "Hi <b>&amp; 'you'"}]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "<s>", "</s>", now=lambda: datetime(2024, 11, 29, tzinfo=UTC))


def render(source: str, messages: Any = USER, /, **variables: Any) -> str:
    return template(source).render(messages, True, None, **variables)


def test_smollm2_s_own_template(smol_metadata: dict[str, Any], smol: Tokenizer) -> None:
    chat = gguf_template(smol_metadata, smol)
    text = chat.render([{"role": "user", "content": "Hi"}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.render([{"role": "user", "content": "Hi"}], False) == text.removesuffix("<|im_start|>assistant\n")
    assert smol.encode(text, False)[:2] == [1, 9690]


# Constructs of published templates, each rendered by Jinja itself for comparison.
PUBLISHED = [
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}",
    "{% set ns = namespace(n=0) %}"
    "{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n ~ ':' ~ m.role }}{% endfor %}",
    "{% if messages[0].role == 'system' and 1 < 2 <= 2 %}a"
    "{% elif messages|length > 0 %}{{ messages|length }}{% endif %}",
    "{% for m in messages[1:] %}x{{ loop.index0 }}{{ loop.last }}{{ loop.length }}{% else %}none{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.first }}{{ m.content.split(' ')[-1].upper() }}{% endfor %}",
    "{% macro one(m, end='!') %}{{ m.role }}{{ end }}{% endmacro %}"
    "{{ one(messages[0]) }}{{ one(messages[0], end='?') }}",
    "{% set x %}a{{ messages[0].role }}{% endset %}{{ x * 3 }}{{ '-' * 5 }}{{ 7 % 3 }}{{ 2 ** 5 }}{{ 7 // 2 }}",
    "{{ '%s is %d' % (messages[0].role, 3) }}{{ 'user' in messages[0].values() }}{{ 'role' in messages[0] }}",
    "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}{{ messages[0] | items | list }}",
    "{{ messages | map(attribute='role') | join(', ') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ tools is none }}{{ tools is defined }}{{ nothing is defined }}{{ nothing }}{{ messages is iterable }}",
    "{{ messages[0].content | replace('Hi', 'Ho') | upper }}{{ messages[0].missing | default('d') }}{{ [1, 2] + [3] }}",
    "{{- 'a' }}\n   {%- if true %}\n   b\n   {%- endif %}\n"
    "{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% set a, b = 'x', 'y' %}{{ a ~ b }}{{ ('p', 'q') | join('+') }}"
    "{{ messages[0].content.startswith('Hi') }}{{ -3 | abs }}",
    "{% filter upper %}shout {{ messages[0].role }}{% endfilter %}{% call(x) wrap() %}{{ x }}{% endcall %}".replace(
        "{% call", "{% macro wrap() %}<{{ caller(1) }}>{% endmacro %}{% call"
    ),
]


@pytest.mark.parametrize("source", PUBLISHED)
def test_published_constructs_render_as_jinja_renders_them(source: str) -> None:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    expected = environment.from_string(source).render(
        messages=USER, tools=None, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
    )
    assert render(source) == expected


def test_what_transformers_adds_to_jinja() -> None:
    assert render("{{ messages[0] | tojson }}", [{"role": "ü", "content": "<é>"}]) == '{"role": "ü", "content": "<é>"}'
    assert render("{{ {'a': [1]} | tojson(indent=2) }}") == '{\n  "a": [\n    1\n  ]\n}'
    assert render("{{ strftime_now('%d %b %Y') }}") == "29 Nov 2024"
    assert render("{% generation %}x{{ messages[0].role }}{% endgeneration %}") == "xuser"
    with pytest.raises(RequestError, match=r"^roles must alternate$") as caught:
        render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.param == "messages"


@pytest.mark.parametrize("message", [{"role": "assistant", "content": None}, {"role": "assistant"}])
def test_absent_content_renders_as_empty(message: dict[str, Any]) -> None:
    for source in (
        "{{ messages[0].content }}",
        "{{ '' + messages[0]['content'] }}",
        "{{ messages[0].content | trim }}",
    ):
        assert render(f"[{source}]", [message]) == "[]"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"])
def test_b079_reserved_names_cannot_be_overridden(name: str) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        render("{{ bos_token }}", **{name: "x"})
    assert caught.value.param == f"chat_template_kwargs.{name}"
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"


# What doubles in each of 60 steps, under the name `ns.x` (and `ns.y`), and is then used.
def doubled(start: str, step: str, use: str) -> str:
    again = step.replace("ns.x", "ns.y")
    steps = f"{{% set ns.x = {step} %}}{{% set ns.y = {again} %}}"
    begin = f"{{% set ns = namespace(x={start}, y={start}) %}}"
    return f"{begin}{{% for i in range(60) %}}{steps}{{% endfor %}}{{{{ {use} }}}}"


def nested_loops(body: str, over: str = "range(100000)") -> str:
    return f"{{% for a in {over} %}}{{% for b in {over} %}}{body}{{% endfor %}}{{% endfor %}}"


LONG_LOOP = "{% for a in range(100000) %}"
DEEP_LOOP = "{% set ns = namespace(x=()) %}{% for i in range(10000) %}"
HOSTILE = {
    "loops 10**10 times": nested_loops(""),
    "prints in nested loops": nested_loops("x"),
    "asks for a long range": "{% for a in range(10000000000) %}{% endfor %}",
    "loops over products": "{% set x = [0] * 100000 %}" + nested_loops("", "x"),
    "filters in a loop": "{% for a in range(100000) if range(100000) | list | length == 1 %}{% endfor %}",
    "doubles by adding": doubled("'ab'", "ns.x + ns.x", "1"),
    "doubles by joining": doubled("'ab'", "ns.x ~ ns.x", "1"),
    "doubles a list": doubled("[1]", "ns.x + ns.x", "1"),
    "doubles by a block": "{% set ns = namespace(x='ab') %}{% for i in range(40) %}"
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "nests shared lists and prints": doubled("[1]", "[ns.x, ns.x]", "ns.x"),
    "nests shared lists and compares": doubled("[1]", "[ns.x, ns.x]", "ns.x == ns.y"),
    "nests shared lists and tests": doubled("[1]", "[ns.x, ns.x]", "ns.x is eq(ns.y)"),
    "nests shared lists and selects": doubled("[1]", "[ns.x, ns.x]", "[ns.x] | select('in', [ns.y]) | list"),
    "nests shared lists and dumps": doubled("[1]", "[ns.x, ns.x]", "ns.x | tojson"),
    "nests shared lists and searches": doubled("[1]", "[ns.x, ns.x]", "ns.x in {'a': ns.y}.values()"),
    "nests shared lists and raises": doubled("[1]", "[ns.x, ns.x]", "raise_exception(ns.x)"),
    "nests shared lists and formats": doubled("[1]", "[ns.x, ns.x]", "'%s' % ns.x"),
    "nests shared lists and sorts": doubled("[1]", "[ns.x, ns.x]", "[ns.x, ns.y] | sort"),
    "nests shared mappings": doubled("{}", "{'a': ns.x, 'b': ns.x}", "ns.x"),
    "nests shared namespaces": doubled("1", "namespace(a=ns.x, b=ns.x)", "ns.x"),
    "nests shared tuples and hashes": doubled("()", "(ns.x, ns.x)", "{ns.x: 1}"),
    "nests shared tuples and looks up": doubled("()", "(ns.x, ns.x)", "{'a': 1}[ns.x]"),
    "nests shared tuples and gets": doubled("()", "(ns.x, ns.x)", "{'a': 1}.get(ns.x)"),
    "nests shared tuples and subtracts": doubled("()", "(ns.x, ns.x)", "{'a': 1}.keys() - [ns.x]"),
    "nests shared tuples and names a filter": doubled("()", "(ns.x, ns.x)", "[1] | map(ns.x) | list"),
    "nests shared tuples and makes a dict": doubled("()", "(ns.x, ns.x)", "dict([[ns.x, 1]])"),
    "nests tuples deep and hashes": DEEP_LOOP + "{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}",
    "nests lists deep and dumps": DEEP_LOOP + "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "squares": doubled("3", "ns.x * ns.x", "1"),
    "repeats a string": "{{ 'x' * 1000000000 }}",
    "repeats from the left": "{{ 1000000000 * 'x' }}",
    "repeats a list": "{{ ([0] * 1000000000) | length }}",
    "raises to a power": "{{ 10 ** 1000000000 }}",
    "formats widely": "{{ '%1000000000d' % 1 }}",
    "formats widely by a star": "{{ '%*d' % (1000000000, 1) }}",
    "formats by method": "{{ '{:>1000000000}'.format(1) }}",
    "pads": "{{ 'x'.ljust(1000000000) }}",
    "fills zeros": "{{ 'x'.zfill(1000000000) }}",
    "expands tabs": "{{ '\t'.expandtabs(1000000000) }}",
    "centres": "{{ 'x' | center(1000000000) }}",
    "indents": "{{ ('\n' * 100000) | indent(100000) }}",
    "indents JSON": "{{ [1] | tojson(indent=1000000000) }}",
    "replaces by longer text": "{{ ('x' * 1000000).replace('x', 'y' * 100000) }}",
    "replaces by a filter": "{{ ('x' * 1000000) | replace(old='x', new='y' * 100000) }}",
    "joins with long text": "{{ ('x' * 100000).join(['y'] * 100000) }}",
    "joins by a filter": "{{ (['y'] * 100000) | join('x' * 100000) }}",
    "joins a mapped list": "{% set big = 'x' * 1000000 %}{{ ([{'a': big}] * 100000) | map(attribute='a') | join }}",
    "maps a list of ranges": "{{ ([range(100000)] * 100000) | map('list') | list | length }}",
    "makes bytes": "{{ (5).to_bytes(1000000000) }}",
    "sorts text": "{{ ('xy' * 8000000) | sort | length }}",
    "splits text": "{{ ('x ' * 10000000).split() | length }}",
    "calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "slices long text": "{% set z = 'x' * 10000000 %}{% for a in range(100000) %}{% set y = z[1:] %}{% endfor %}",
    "reaches for a class": "{{ ''.__class__ }}",
    "reaches for a class by subscript": "{{ ''['__class__']['__mro__'] }}",
    "reaches for a class by filter": "{{ messages | map(attribute='__class__') | list }}",
    "reaches for a class by sort": "{{ messages | sort(attribute='__class__.__mro__') }}",
    "reaches for globals": "{{ raise_exception.__globals__ }}",
    "reaches for globals of a range": "{{ range.__globals__ }}",
    "reaches for the template": "{{ self._TemplateReference__context }}",
    "reaches through format": "{{ '{0.__class__}'.format(1) }}",
    "reaches through attr": "{{ '' | attr('__class__') }}",
    "changes the messages": "{{ messages.append(1) }}",
    "changes a message": "{{ messages[0].update({'content': 'x'}) }}",
    "changes a message by the type's method": "{{ dict.update(messages[0], {'content': 'x'}) }}",
    "includes a file": "{% include '/etc/passwd' %}",
    "extends a file": "{% extends '/etc/passwd' %}",
    "titles text": "{{ ('a ' * 8000000) | title }}",
    "selects characters": "{{ ('x' * 16000000) | select | list | length }}",
    "joins a range": "{{ range(100000) | join('x' * 100000) }}",
    "joins a mapped list by a method": "{{ ('x' * 100000).join((['y'] * 100000) | map('upper')) }}",
    "indents nested JSON": doubled("1", "[ns.x]", "([ns.x] * 200000) | tojson(indent=64)"),
    "formats widely by key": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "calls in a tree": "".join(
        f"{{% macro f{i}() %}}{{{{ f{i + 1}() }}}}{{{{ f{i + 1}() }}}}{{% endmacro %}}" for i in range(40)
    )
    + "{% macro f40() %}{% endmacro %}{{ f0() }}",
    "repeats long literal text": LONG_LOOP + "y" * 50000 + "{% endfor %}",
    "collects long literal text": "{% set z %}" + LONG_LOOP + "y" * 50000 + "{% endfor %}{% endset %}",
    "reaches for a class by unique": "{{ messages | unique(attribute='__class__') | list }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_b079_a_hostile_template_ends_soon_with_an_error(name: str) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises((RequestError, CheckpointError)):
            render(HOSTILE[name], messages)
        elapsed_s = time.perf_counter() - start
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert elapsed_s < 2
    assert peak_bytes < 300 << 20
    assert messages == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ unclosed",
        "{{ x | nofilter }}",
        "x" * (1 << 18),
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for a in b recursive %}{{ loop(a) }}{% endfor %}",
        "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    ],
    ids=range(7),
)
def test_a_template_that_is_no_chat_template_is_refused_when_it_is_loaded(source: str) -> None:
    with pytest.raises(CheckpointError, match="chat template"):
        template(source)


def test_a_failing_template_is_an_error_of_the_request() -> None:
    for source in ("{{ messages[5].content + 'x' }}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{% for x in 5 %}{% endfor %}"):
        with pytest.raises(RequestError, match="chat template failed"):
            render(source)


def test_long_conversations_stay_far_below_the_budget(smol_metadata: dict[str, Any], smol: Tokenizer) -> None:
    messages = [{"role": "user", "content": "word " * 400}] * 1500
    text = gguf_template(smol_metadata, smol).render(messages)
    assert len(text) > 3_000_000


def test_a_checkpoint_without_a_template_says_so() -> None:
    chat = gguf_template({}, gguf_tokenizer(sentence_piece_metadata()))
    with pytest.raises(RequestError, match="--chat-template"):
        chat.render(USER)
    with pytest.raises(CheckpointError, match=r"tokenizer\.chat_template"):
        gguf_template({"tokenizer.chat_template": 7}, gguf_tokenizer(sentence_piece_metadata()))


def test_a_folder_s_template_comes_from_either_file(tmp_path: Path, smol: Tokenizer) -> None:
    config = tmp_path / "tokenizer_config.json"
    with pytest.raises(RequestError, match="--chat-template"):
        folder_template(tmp_path, smol).render(USER)
    config.write_text('{"chat_template": "one {{ eos_token }}"}')
    assert folder_template(tmp_path, smol).render(USER) == "one <|im_end|>"
    config.write_text(
        '{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}'
    )
    assert folder_template(tmp_path, smol).render(USER) == "d"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert folder_template(tmp_path, smol).render(USER) == "file"


def test_b007_a_chat_begins_once_because_the_template_alone_decides() -> None:
    tokenizer = gguf_tokenizer(sentence_piece_metadata())
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}<end_of_turn>\n{% endfor %}"
    chat = gguf_template({"tokenizer.chat_template": source}, tokenizer)
    ids = tokenizer.encode(chat.render([{"role": "user", "content": "Hello"}]), False)
    assert ids[0] == 2
    assert ids.count(2) == 1
    assert ids.count(tokenizer.encode("<end_of_turn>", False)[0]) == 1
