"""Random mixes of requests against their plain runs: the bits of every chosen token's logprob must be equal.

A plain run is the request alone: an empty pool, the whole prompt in one chunk, nothing cached. A mix draws arrivals,
lengths past two attention pieces, shared prefixes, small pools, chunk budgets, cancellations, n > 1, penalties and
grammars. What a grammar forces comes at once in a mix (and has no logprob then) and one by one in a plain run.

    python tests/exactness/mixes.py --mixes 200 --isa avx512 --threads 2
"""

import argparse
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.plan import StepPlan, StepResult, TokenLogprobs
from paceline.core.policy import LearnedReserve, Reserve
from paceline.core.request import Grammar, GrammarKind, Request, RequestId, SamplingParams, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.core.sequence import Sequence
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.model import ModelExecutor
from paceline.exec.rows import RowTable
from paceline.models.resolve import open_checkpoint, resolve
from paceline.models.spec import ModelSpec
from paceline.models.transformer import Transformer, load_model
from paceline.ops.cpu import CpuBackend
from paceline.ops.protocol import KvFormat, KvLayout, SessionShape
from paceline.server.model_text import spellings_of
from paceline.text.model_text import load_model_text

BLOCK_SIZE = 16
MAX_CONTEXT = 1024
MAX_ROWS = 8
PLAIN_BLOCKS = MAX_CONTEXT // BLOCK_SIZE
BUDGETS = (1, 3, 16, 17, 64, 100, 256, 4096)

GRAMMARS = (
    Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":'
            '{"type":"integer","maximum":200},"kind":{"enum":["cat","dog","é日本"]}},"required":["name","age","kind"],'
            '"additionalProperties":false}'),
    Grammar(GrammarKind.JSON_SCHEMA, '{"type":"array","items":{"type":"boolean"},"minItems":9,"maxItems":20}'),
    Grammar(GrammarKind.REGEX, "(Yes, of course|No, never)[.!]( [a-z]{1,8}){2,20}"),
    Grammar(GrammarKind.CHOICE, '["the first of two answers, long enough to be cut","the second"]'),
)  # fmt: skip

Bits = list[tuple[int, bytes]]


class NoReserve:
    """Admits whoever fits today, so that growth must preempt: the learned reserve hardly ever lets it come to that."""

    def observe(self, num_output: int) -> None:
        """Learns nothing."""

    def forecast(self) -> "NoReserve":
        return self

    def add(self, sequence: Sequence, num_held: int) -> None:
        """Expects nothing."""

    def peak_blocks(self) -> float:
        return 0.0


@dataclass
class Counts:
    """What the mixes really contained."""

    mixes: int = 0
    tokens: int = 0
    with_preemption: int = 0
    with_partial_copy: int = 0
    with_cancel: int = 0
    choices: int = 0
    with_grammar: int = 0
    forced: int = 0


@dataclass
class Watch:
    """An executor that counts the partial copies it is asked for."""

    inner: ModelExecutor
    num_copies: int = 0

    def execute(self, plan: StepPlan) -> StepResult:
        self.num_copies += len(plan.copies)
        return self.inner.execute(plan)


@dataclass
class Machine:
    """The model on one backend, and the plain runs made so far."""

    backend: CpuBackend
    model: Transformer
    spec: ModelSpec
    compiler: GrammarCompiler
    eos_ids: frozenset[int]
    kv_format: KvFormat
    plain_bits: dict[tuple[object, ...], list[Bits]] = field(default_factory=dict)

    def loop(self, num_blocks: int, budget: int, reserve: Reserve) -> tuple[StepLoop, Watch]:
        layout = KvLayout(
            self.spec.num_layers,
            num_blocks,
            BLOCK_SIZE,
            self.spec.num_kv_heads,
            self.spec.head_width,
            self.kv_format,
        )
        session = self.backend.session(self.model, SessionShape(budget, MAX_ROWS, layout))
        watch = Watch(ModelExecutor(session, RowTable(MAX_ROWS, MAX_CONTEXT, PLAIN_BLOCKS), self.compiler))
        limits = SchedulerLimits(MAX_ROWS, budget, MAX_CONTEXT)
        kv = KvManager(num_blocks, BLOCK_SIZE)
        return StepLoop(Scheduler(limits, kv, reserve), watch), watch

    def plain(self, request: Request) -> list[Bits]:
        """The bits of each choice, run alone, one sequence at a time."""
        key = (request.prompt.tobytes(), request.stop, request.sampling, request.num_sequences)
        if key not in self.plain_bits:
            self.plain_bits[key] = [
                self._plain_choice(replace(request, sampling=request.sampling.for_choice(choice), num_sequences=1))
                for choice in range(request.num_sequences)
            ]
        return self.plain_bits[key]

    def _plain_choice(self, request: Request) -> Bits:
        loop, _ = self.loop(PLAIN_BLOCKS, 4096, LearnedReserve(BLOCK_SIZE))
        loop.scheduler.submit(replace(request, sampling=replace(request.sampling, num_logprobs=0)))
        bits: Bits = []
        while loop.scheduler.has_work():
            for output in loop.step():
                bits += map(token_bits, output.tokens)
        return bits


def token_bits(token: TokenLogprobs) -> tuple[int, bytes]:
    return token.token_id, b"" if token.logprob is None else struct.pack("<f", token.logprob)


def same(bits: Bits, wanted: Bits, request: Request) -> bool:
    """The same ids, and the same logprobs but for those that a forced token need not have."""
    may_lack = request.sampling.grammar is not None and request.sampling.num_logprobs is None
    return len(bits) == len(wanted) and all(
        mine == plain or (may_lack and mine == (plain[0], b"")) for mine, plain in zip(bits, wanted, strict=True)
    )


def load(isa: str | None, num_threads: int, int8: bool = False) -> Machine:
    """`int8`: weights and KV."""
    checkpoint = open_checkpoint(resolve("smollm2-135m"))
    backend = CpuBackend(num_threads, isa, per_channel=int8)
    tokenizer = load_model_text("smollm2-135m").tokenizer
    compiler = GrammarCompiler(checkpoint.spec.vocab_size)
    compiler.learn_spellings(spellings_of(tokenizer))
    model = load_model(checkpoint, backend, MAX_CONTEXT)
    kv_format = KvFormat.INT8 if int8 else KvFormat.BFLOAT16
    return Machine(backend, model, checkpoint.spec, compiler, tokenizer.eos_ids, kv_format)


def draw_requests(rng: random.Random, machine: Machine, longest: int) -> list[Request]:
    """Two to five requests; most start with a piece of one common prefix, cut anywhere."""
    vocab_size = machine.spec.vocab_size
    prefix = [rng.randrange(vocab_size) for _ in range(rng.randrange(longest // 4, longest))]
    requests = []
    for index in range(rng.randrange(2, 6)):
        shared = prefix[: rng.randrange(len(prefix) + 1)] if rng.random() < 0.8 else []
        own = [rng.randrange(vocab_size) for _ in range(rng.randrange(1, 24))]
        penalties = rng.random() < 0.4
        grammar = rng.choice(GRAMMARS) if rng.random() < 0.4 else None
        sampling = SamplingParams(
            temperature=rng.choice([0.0, 0.0, 0.8, 1.3]),
            top_k=rng.choice([None, 40]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=1.3 if penalties else 1.0,
            frequency_penalty=0.7 if penalties else 0.0,
            presence_penalty=0.5 if penalties else 0.0,
            seed=rng.randrange(2**64),
            num_logprobs=rng.choice([None, 0]),
            grammar=grammar,
        )
        stop = StopRule(max_tokens=rng.randrange(1, 40), stop_token_ids=machine.eos_ids if grammar else frozenset())
        num_sequences = rng.choice([1, 1, 1, 2, 3])
        requests.append(
            Request(RequestId(index), token_array(shared + own), stop, sampling, num_sequences, arrival_s=float(index))
        )
    return requests


def run_mix(machine: Machine, seed: int, longest: int, counts: Counts) -> None:
    """One mix; AssertionError when a choice differs from its plain run."""
    rng = random.Random(seed)
    requests = draw_requests(rng, machine, longest)
    need = max(-(-(len(request.prompt) + request.stop.max_tokens) // BLOCK_SIZE) for request in requests)
    is_tight = rng.random() < 0.8
    num_blocks = need + rng.randrange(0, 3) if is_tight else PLAIN_BLOCKS * 4
    reserve = NoReserve() if is_tight else LearnedReserve(BLOCK_SIZE)
    loop, watch = machine.loop(num_blocks, rng.choice(BUDGETS), reserve)
    arrivals = sorted((rng.randrange(0, 12), request.request_id) for request in requests)
    cancels = {rng.choice(requests).request_id: rng.randrange(2, 14)} if rng.random() < 0.3 else {}
    got = dict(drive(loop, requests, arrivals, cancels))
    for request in requests:
        for choice, expected in enumerate(machine.plain(request)):
            bits = got.get((request.request_id, choice), [])
            wanted = expected[: len(bits)] if request.request_id in cancels else expected
            assert same(bits, wanted, request), (
                f"seed {seed}: request {request.request_id} choice {choice} differs from its plain run"
            )
            counts.forced += sum(not logprob for _, logprob in bits)
            counts.tokens += len(bits)
            counts.choices += 1
    counts.mixes += 1
    counts.with_grammar += any(request.sampling.grammar for request in requests)
    counts.with_preemption += loop.scheduler.num_preemptions > 0
    counts.with_partial_copy += watch.num_copies > 0
    counts.with_cancel += bool(cancels)


def drive(
    loop: StepLoop, requests: list[Request], arrivals: list[tuple[int, RequestId]], cancels: dict[RequestId, int]
) -> Iterator[tuple[tuple[RequestId, int], Bits]]:
    """Turn the crank until everyone has finished; tokens of each choice in order."""
    by_id = {request.request_id: request for request in requests}
    got: dict[tuple[RequestId, int], Bits] = {}
    step = 0
    while arrivals or loop.scheduler.has_work():
        while arrivals and arrivals[0][0] <= step:
            loop.scheduler.submit(by_id[arrivals.pop(0)[1]])
        for request_id, at_step in cancels.items():
            if step == at_step:
                loop.scheduler.cancel(request_id)
        for output in loop.step():
            got.setdefault((output.request_id, output.choice_index), []).extend(map(token_bits, output.tokens))
        step += 1
    yield from got.items()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isa", default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--int8", action="store_true", help="weights and KV in int8")
    parser.add_argument("--longest", type=int, default=400, help="longest shared prefix, tokens")
    options = parser.parse_args()
    machine, counts = load(options.isa, options.threads, options.int8), Counts()
    for seed in range(options.seed, options.seed + options.mixes):
        run_mix(machine, seed, options.longest, counts)
    print(f"{Path(__file__).name}: {options} equal to plain runs: {counts}")


if __name__ == "__main__":
    main()
