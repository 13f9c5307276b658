"""The comparison with other engines counts what it says: on times and figures whose answers are known by hand."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


@pytest.fixture(scope="module")
def work() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peers_work", FOLDER / "work.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def stream(work: ModuleType, times_s: list[float], submitted_s: float = 0.0, is_injected: bool = False) -> object:
    made = work.Stream([1], len(times_s), is_injected)
    made.submitted_s, made.token_times_s = submitted_s, times_s
    return made


def test_decode_counts_tokens_while_every_stream_runs(work: ModuleType) -> None:
    task = work.Work("decode-2", 2, 128, 5, (work.DECODE,))
    early = [1.0, 2.0, 3.0, 4.0, 5.0]
    late = [2.5, 3.5, 4.5, 5.5, 6.5]
    figures = work.figures_of(task, [stream(work, early), stream(work, late)])
    # (2.5, 5.0] holds 3, 4 and 5 of the first and 3.5 and 4.5 of the second.
    assert figures[work.DECODE.name] == pytest.approx(5 / 2.5)
    assert figures["output_tokens_per_s"] == pytest.approx(10 / 6.5)


def test_prefill_ends_with_the_last_prompts_first_token(work: ModuleType) -> None:
    task = work.Work("prefill", 2, 512, 1, (work.PREFILL,))
    figures = work.figures_of(task, [stream(work, [2.0], 1.0), stream(work, [3.0], 1.0)])
    assert figures[work.PREFILL.name] == pytest.approx(2 * 512 / 2.0)


def test_the_worst_gap_is_one_that_ended_after_the_long_prompt_came(work: ModuleType) -> None:
    task = work.Work("hol", 1, 128, 5, (work.WORST_GAP, work.LONG_TTFT), has_long_prompt=True)
    running = stream(work, [0.0, 3.0, 4.0, 4.5, 6.0])
    long = stream(work, [6.5, 7.0], 4.1, is_injected=True)
    figures = work.figures_of(task, [running, long])
    assert figures[work.WORST_GAP.name] == pytest.approx(1500.0)
    assert figures[work.LONG_TTFT.name] == pytest.approx(2.4)
    assert figures["median_gap_before_ms"] == pytest.approx(2000.0)


def test_an_engine_that_gives_fewer_tokens_is_no_measurement(work: ModuleType) -> None:
    task = work.Work("decode-1", 1, 128, 4, (work.DECODE,))
    short = stream(work, [1.0, 2.0])
    short.num_outputs = 4
    with pytest.raises(ValueError, match="2 tokens came, 4 were asked for"):
        work.figures_of(task, [short])


def test_the_long_prompt_comes_when_the_first_stream_is_far_enough(work: ModuleType) -> None:
    class OneTokenAStep:
        def __init__(self) -> None:
            self.left: dict[int, int] = {}
            self.seen_before_long = 0

        def submit(self, prompt: list[int], num_outputs: int) -> int:
            if len(prompt) == work.LONG_PROMPT:
                self.seen_before_long = 200 - self.left[0]
            self.left[len(self.left)] = num_outputs
            return len(self.left) - 1

        def step(self) -> list[tuple[int, int]]:
            running = [key for key, left in self.left.items() if left]
            for key in running:
                self.left[key] -= 1
            return [(key, 1) for key in running]

    engine, task = OneTokenAStep(), work.WORKS["hol"]
    streams = work.streams_of(task, "seed")
    work.serve(engine, streams)
    assert engine.seen_before_long == work.INJECT_AFTER
    assert [len(each.token_times_s) for each in streams] == [200] * 8 + [work.LONG_OUTPUT]


def line(round_index: int, engine: str, work_name: str, **figures: float) -> str:
    about = {"version": "1", "weights": "w", "kv_cache": "k", "interface": "i", "flags": "f"}
    key = {"run": "r", "round": round_index, "engine": engine, "format": "x", "work": work_name}
    probe = {"read_gb_per_s": 33.0, "vnni_gop_per_s": 935.0}
    return json.dumps(key | {"figures": figures, "probe": probe, "about": about})


def test_ratios_are_paired_by_round_and_above_one_means_ahead(tmp_path: Path) -> None:
    lines = [json.dumps({"run": "r"})]
    for index, (ours, theirs) in enumerate(((200.0, 100.0), (90.0, 30.0), (400.0, 100.0))):
        lines += [line(index, "paceline", "decode-1", decode_tokens_per_s=ours)]
        lines += [line(index, "vllm", "decode-1", decode_tokens_per_s=theirs)]
        lines += [line(index, "paceline", "hol", worst_gap_ms=10.0, long_ttft_s=8.0)]
        lines += [line(index, "vllm", "hol", worst_gap_ms=50.0, long_ttft_s=4.0)]
    lines.append(json.dumps({"run": "r", "round": 3, "engine": "vllm", "format": "x", "failed": "boom"}))
    file = tmp_path / "peers.jsonl"
    file.write_text("\n".join(lines))
    command = [sys.executable, str(FOLDER / "report.py"), str(file), "--out", str(tmp_path / "peers.html")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "3.00 × (2.00–4.00)" in printed  # Not 2.00, the ratio of the medians.
    assert "5.00 × (5.00–5.00)" in printed
    assert "0.50 × (0.50–0.50)" in printed
    assert (tmp_path / "peers.html").stat().st_size > 0
