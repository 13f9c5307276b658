"""The comparison with other engines counts what it says: on times and figures whose answers are known by hand."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
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


Watched = dict[str, object]


def line(round_index: int, engine: str, work_name: str, watched: Watched | None = None, **figures: float) -> str:
    about = {"version": "1", "weights": "w", "kv_cache": "k", "interface": "i", "flags": "f"}
    key = {"run": "r", "round": round_index, "engine": engine, "format": "x", "work": work_name}
    probe = {"read_gb_per_s": 33.0, "vnni_gop_per_s": 935.0}
    seen = {} if watched is None else {"sharing": watched}
    return json.dumps(key | {"figures": figures, "probe": probe, "about": about} | seen)


def watched(*shared_cores: float | None, best_adds_per_ns: float = 13.0) -> Watched:
    return {"shared_cores": shared_cores, "best_adds_per_ns": best_adds_per_ns}


def report(folder: Path, lines: list[str]) -> str:
    """What is printed; the page must have been written too."""
    file, page = folder / "peers.jsonl", folder / "peers.html"
    file.write_text("\n".join(lines))
    command = [sys.executable, str(FOLDER / "report.py"), str(file), "--out", str(page)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert page.stat().st_size > 0
    return printed


def test_ratios_are_paired_by_round_and_above_one_means_ahead(tmp_path: Path) -> None:
    lines = [json.dumps({"run": "r"})]
    for index, (ours, theirs) in enumerate(((200.0, 100.0), (90.0, 30.0), (400.0, 100.0))):
        lines += [line(index, "paceline", "decode-1", decode_tokens_per_s=ours)]
        lines += [line(index, "vllm", "decode-1", decode_tokens_per_s=theirs)]
        lines += [line(index, "paceline", "hol", worst_gap_ms=10.0, long_ttft_s=8.0)]
        lines += [line(index, "vllm", "hol", worst_gap_ms=50.0, long_ttft_s=4.0)]
    lines.append(json.dumps({"run": "r", "round": 3, "engine": "vllm", "format": "x", "failed": "boom"}))
    printed = report(tmp_path, lines)
    assert "| 3.00 × (2.00–4.00) | – (0) |" in printed  # Not 2.00, the ratio of the medians; and nobody watched.
    assert "5.00 × (5.00–5.00)" in printed
    assert "0.50 × (0.50–0.50)" in printed
    assert "| 33 | 935 | – |" in printed


def test_a_second_ratio_is_that_of_the_rounds_in_which_nobody_used_the_cores_of_either(tmp_path: Path) -> None:
    quiet, no_sample = watched(0.0, 0.09), watched(None, None)
    rounds = [
        (10.0, watched(0.08, 0.02), quiet),  # 0.05 is not below 0.05.
        (20.0, quiet, watched(0.0, 0.0, best_adds_per_ns=7.0)),  # Its watcher saw no core that was not shared.
        (30.0, quiet, no_sample),
        (40.0, quiet, None),
        (2.0, quiet, quiet),
        (3.0, watched(None, 0.04), quiet),
        (4.0, quiet, watched(0.0, 0.0, best_adds_per_ns=11.0)),
    ]
    lines = []
    for index, (ratio, ours, theirs) in enumerate(rounds):
        lines += [line(index, "paceline", "decode-1", ours, decode_tokens_per_s=100 * ratio)]
        lines += [line(index, "vllm", "decode-1", theirs, decode_tokens_per_s=100.0)]
        if index < 6:
            lines += [line(index, "paceline", "prefill-512", ours, prefill_tokens_per_s=200.0)]
            lines += [line(index, "vllm", "prefill-512", theirs, prefill_tokens_per_s=100.0)]
    printed = report(tmp_path, lines)
    assert "| 10.00 × (2.00–40.00) | 3.00 × (2.00–4.00) (3) |" in printed
    assert "| 2.00 × (2.00–2.00) | – (2) |" in printed
    assert "| paceline x | 1,000 (200–4,000) | 33 | 935 | 4 (5) |" in printed
    assert "| vllm x | 100 (100–100) | 33 | 935 | 4 (100) |" in printed


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_watcher_answers_each_line_with_what_it_saw_since_the_last(tmp_path: Path) -> None:
    program = tmp_path / "sharing"
    flags = ["-O3", "-march=native", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, str(FOLDER / "sharing.c"), "-o", str(program)], check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdin is not None
        assert watcher.stdout is not None
        answers = []
        for wait_s in (1.0, 0.5, 0.0):
            time.sleep(wait_s)
            watcher.stdin.write("\n")
            watcher.stdin.flush()
            answers.append(json.loads(watcher.stdout.readline()))
        watcher.stdin.close()
        assert watcher.wait(10.0) == 0
    num_cpus = len(os.sched_getaffinity(0))
    for answer, (least, most) in zip(answers, ((1, 12), (1, 7), (0, 2)), strict=True):
        assert answer["priority"] in ("fifo", "nice -20", "ordinary")
        assert 0.05 < answer["best_adds_per_ns"] < 100.0
        assert len(answer["shared_cores"]) == len(answer["samples"]) == num_cpus
        for shared, num_samples in zip(answer["shared_cores"], answer["samples"], strict=True):
            assert least <= num_samples <= most
            assert (shared is None) == (num_samples == 0)
            assert shared is None or 0.0 <= shared <= 1.0
