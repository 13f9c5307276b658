"""What `paceline plan` prints: the answer first, then its reasons, then what to change."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.costs.capacity import OperatingPoint
from paceline.costs.units import counted, digits, sized, timed
from paceline.planning.answer import Answer

NUM_EFFECTS = 5


def print_answer(console: Console, found: Answer) -> None:
    """The whole answer."""
    console.print(f"[bold]{escape(headline(found))}[/]", highlight=False)
    console.print(escape(subject(found)), style="dim", highlight=False)
    if found.plan.refusal is None:
        console.print(grid(("measure", "at this load", "at capacity"), _measures(found)))
    print_list(console, "why", found.plan.reasons)
    if found.has_pools and found.plan.refusal is None:
        print_list(console, pools_line(found), () if found.pools is None else found.pools.reasons)
    if found.turns:
        turn_heads = ("turn", "context", "decode step", "TPOT", "KV", "sessions that fit")
        console.print(grid(turn_heads, [_turn(found, index) for index in range(len(found.turns))]))
        print_list(console, f"turns of {found.turns[0].num_sessions:,} sessions at once", turn_notes(found))
    if found.effects:
        heads = ("what would change it", "requests/s a card", "cards", "TPOT", "per 1M tokens")
        console.print(grid(heads, effect_rows(found)[:NUM_EFFECTS]))


def headline(found: Answer) -> str:
    """The answer in a sentence."""
    plan, question = found.plan, found.question
    if plan.capacity is None:
        return plan.refusal or "no answer"
    card = question.replica.estimator.hardware.name
    if plan.fleet is None:
        return f"one replica of {found.num_cards} × {card} takes {digits(plan.capacity.rate_per_s, 4)} requests/s"
    fleet = plan.fleet
    plural, cards = ("s" if number > 1 else "" for number in (fleet.num_replicas, fleet.num_cards))
    price = (
        "" if fleet.price_per_million_tokens is None else f", {digits(fleet.price_per_million_tokens)} per 1M tokens"
    )
    return (
        f"{fleet.num_replicas:,} replica{plural} of {question.replica.estimator.num_cards} × {card} "
        f"({fleet.num_cards:,} card{cards}), each at {fleet.utilization:.0%} of its capacity{price}"
    )


def subject(found: Answer) -> str:
    """What was asked about, in a line."""
    estimator, load = found.question.replica.estimator, found.question.replica.load
    model = estimator.model
    active = "" if model.num_active_params is None else f", {counted(model.active_params)} active"
    rate = "" if load.rate_per_s is None else f", {load.rate_per_s:g} requests/s"
    fitted = "" if found.question.replica.step_time is None else "; step times fitted to recorded steps"
    return (
        f"{model.name} ({counted(model.num_params)} parameters{active}), {load.input_tokens:,} tokens in, "
        f"{load.output_tokens:,} out{rate}; figures: {estimator.hardware.source}{fitted}"
    )


def pools_line(found: Answer) -> str:
    """The pools in a line."""
    pools = found.pools
    if pools is None:
        return "as pools: the TTFT target is out of reach, one prompt's prefill and the transfer of its KV take longer"
    return (
        f"as pools: {pools.num_prefill_replicas} prefill + {pools.num_decode_replicas} decode replicas "
        f"({pools.num_cards} cards), TPOT {timed(pools.tpot_s)}, TTFT {timed(pools.ttft_p99_s)} (p99)"
    )


def effect_rows(found: Answer) -> list[tuple[str, ...]]:
    """Changes with their effects; the gain in brackets."""
    rows: list[tuple[str, ...]] = []
    for effect in found.effects:
        gain = "" if effect.gain is None else f" ({effect.gain:.2f}×)"
        cards = "" if effect.num_cards is None else str(effect.num_cards)
        price = "" if effect.price_per_million_tokens is None else f"{digits(effect.price_per_million_tokens)}"
        rows.append((effect.change, f"{digits(effect.rate_per_card_s)}{gain}", cards, timed(effect.tpot_s), price))
    return rows


def _measures(found: Answer) -> list[tuple[str, ...]]:
    points = (found.at_load, found.plan.capacity)
    num_output = found.question.replica.load.output_tokens
    tokens = ("" if point is None else digits(point.rate_per_s * num_output) for point in points)
    return [(name, *("" if point is None else value(point) for point in points)) for name, value in MEASURES] + [
        ("output tokens/s", *tokens),
        ("sequences that fit", f"{found.plan.memory.num_sequences:,}", f"binds: {found.plan.binds}"),
        ("KV a token", f"{found.plan.memory.kv_bytes_per_token:,.0f} bytes", sized(found.plan.memory.kv_bytes)),
    ]


def _requests(point: OperatingPoint) -> str:
    return f"{digits(point.rate_per_s, 4)} requests/s"


MEASURES = (
    ("rate of a replica", _requests),
    ("sequences at once", lambda point: f"{point.batch:,}"),
    ("TPOT", lambda point: timed(point.tpot_s)),
    ("TTFT, mean", lambda point: timed(point.ttft_s)),
    ("TTFT, p99", lambda point: timed(point.ttft_p99_s)),
    ("E2E, mean", lambda point: timed(point.e2e_s)),
    ("share of prefill", lambda point: f"{point.prefill_share:.0%}"),
)


def _turn(found: Answer, index: int) -> tuple[str, ...]:
    turn = found.turns[index]
    step, tpot = timed(turn.decode_step_s), timed(turn.tpot_s)
    return (
        str(turn.number),
        f"{turn.context_tokens:,}",
        step,
        tpot,
        f"{digits(turn.kv_gb)} GB",
        f"{turn.memory_limit:,}",
    )


def turn_notes(found: Answer) -> list[str]:
    """Where the sessions end, or no longer fit."""
    notes = []
    crowded = next((turn for turn in found.turns if turn.memory_limit < turn.num_sessions), None)
    if crowded is not None:
        notes.append(f"from turn {crowded.number:,} on they no longer fit in memory together: some wait for others")
    if len(found.turns) < found.num_turns:
        model, num_tokens = found.question.replica.estimator.model, found.question.replica.load.last_context
        number = len(found.turns) + 1
        notes.append(
            f"turn {number:,} would have {number * num_tokens:,} tokens, more than the context of {model.name}, "
            f"{model.max_context:,}"
        )
    return notes


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A plain table; numbers to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def print_list(console: Console, title: str, lines: Sequence[str]) -> None:
    """Sentences under a title."""
    console.print(escape(title), style="dim", highlight=False)
    for line in lines:
        console.print(f"- {escape(line)}", highlight=False)
