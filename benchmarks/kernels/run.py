"""How far each CPU kernel is from what the machine gives: GB/s and GOP/s beside read bandwidth and arithmetic peaks.

    python benchmarks/kernels/run.py [--threads 2] [--kernel linear …] [--format Q4_1 …] [--rows 1 …] [--out FILE]

Builds `kernels_bench` (make and a C++ compiler), the engine's kernels and thread pool with a driver around them, and
measures the shapes of SmolLM2-135M, in two to three minutes. Each repeat of a cell probes the machine first;
ratios are of neighbours in time, figures are medians, in brackets their range. MBU: bytes a second, of the bandwidth of
reading; MFU: operations a second, of the peak of the instruction they use; the larger one is the share of the bound.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from paceline.bench.machine import machine, usable_cores, versions

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "kernels"
KERNELS = ["linear", "attention_decode", "attention_prefill", "rotary_store", "norm", "gated", "quantize", "softmax"]
FORMATS = ["Q4_1", "Q4_0", "Q8_0", "int8", "bfloat16", "float32"]
LAYER_SHAPES = {"qkv 960x576", "o 576x576", "gate_up 3072x576", "down 576x1536"}
HEADER = (
    "kernel",
    "format",
    "shape",
    "rows",
    "µs a call",
    "GB/s",
    "GOP/s",
    "MBU %",
    "MFU %",
    "of the bound %",
    "bound",
)
WIDTHS = (17, 8, 16, 4, 22, 5, 6, 5, 5, 14, 8)


class BuildError(Exception):
    """The benchmark could not be built or run; the message says why."""


@dataclass(frozen=True)
class Cell:
    """One kernel on one shape, with all its repeats: a line of kernels_bench."""

    kernel: str
    format: str
    shape: str
    rows: int
    threads: int
    isa: str
    bytes: float
    operations: float
    source: str
    arithmetic: str
    time_us: list[float]
    read_gb_per_s: dict[str, list[float]]
    arithmetic_gop_per_s: dict[str, list[float]]

    @property
    def gb_per_s(self) -> float:
        return self.bytes / median(self.time_us) / 1e3

    @property
    def gop_per_s(self) -> float:
        return self.operations / median(self.time_us) / 1e3

    @property
    def mbu(self) -> list[float]:
        """Of each repeat."""
        peaks = self.read_gb_per_s[self.source]
        return [self.bytes / us / 1e3 / peak for us, peak in zip(self.time_us, peaks, strict=True)]

    @property
    def mfu(self) -> list[float] | None:
        """Of each repeat; None where the processor lacks the instruction whose peak would be its measure."""
        peaks = self.arithmetic_gop_per_s.get(self.arithmetic)
        if peaks is None:
            return None
        return [self.operations / us / 1e3 / peak for us, peak in zip(self.time_us, peaks, strict=True)]

    @property
    def share(self) -> list[float]:
        """Of each repeat: the time it would take at the bound over the time it took."""
        return self.mbu if self.mfu is None else [max(pair) for pair in zip(self.mbu, self.mfu, strict=True)]

    @property
    def bound(self) -> str:
        mfu = self.mfu
        return self.source if mfu is None or median(self.mbu) >= median(mfu) else self.arithmetic

    def figures(self) -> dict[str, float | str | None]:
        """What is derived, for --out."""
        return {
            "gb_per_s": round(self.gb_per_s, 3),
            "gop_per_s": round(self.gop_per_s, 3),
            "mbu": round(median(self.mbu), 4),
            "mfu": None if self.mfu is None else round(median(self.mfu), 4),
            "share_of_bound": round(median(self.share), 4),
            "bound": self.bound,
        }

    def columns(self) -> tuple[str, ...]:
        mfu = "-" if self.mfu is None else f"{100 * median(self.mfu):.0f}"
        share = f"{100 * median(self.share):.0f} ({100 * min(self.share):.0f}-{100 * max(self.share):.0f})"
        times = f"{digits(median(self.time_us))} ({digits(min(self.time_us))}-{digits(max(self.time_us))})"
        rates = (f"{self.gb_per_s:.1f}", f"{self.gop_per_s:.0f}", f"{100 * median(self.mbu):.0f}", mfu)
        return (self.kernel, self.format, self.shape, str(self.rows), times, *rates, share, self.bound)


def digits(value: float) -> str:
    """Three digits or more, never an exponent."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def table_line(columns: tuple[str, ...]) -> str:
    return "| " + " | ".join(text.ljust(width) for text, width in zip(columns, WIDTHS, strict=True)) + " |"


def build(folder: Path) -> Path:
    command = ["make", "-C", str(HERE), f"-j{usable_cores()}", f"BUILD={folder.resolve()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise BuildError("make is not installed; the benchmark needs make and a C++ compiler") from None
    if done.returncode != 0:
        raise BuildError(f"kernels_bench could not be built:\n{done.stderr.strip()}")
    return folder.resolve() / "kernels_bench"


def cells_of(program: Path, options: argparse.Namespace) -> Iterator[Cell]:
    command = [str(program), "--threads", str(options.threads), "--repeats", str(options.repeats)]
    command += ["--isa", options.isa] if options.isa else []
    for name in ("kernel", "format", "rows"):
        chosen = getattr(options, name)
        if chosen:
            command += [f"--{name.removesuffix('s')}s", ",".join(map(str, chosen))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        for line in bench.stdout:
            yield Cell(**json.loads(line))
    if bench.returncode != 0:
        raise BuildError(f"kernels_bench ended with status {bench.returncode}")


def peak_lines(cells: list[Cell]) -> Iterator[str]:
    """What the machine gave over the whole run: median, and the range without the outer twentieths."""
    for unit, peaks_of in (
        ("GB/s", lambda cell: cell.read_gb_per_s),
        ("GOP/s", lambda cell: cell.arithmetic_gop_per_s),
    ):
        for name in peaks_of(cells[0]):
            every = sorted(peak for cell in cells for peak in peaks_of(cell)[name])
            edge = len(every) // 20
            yield f"{name}: {median(every):.0f} {unit} ({every[edge]:.0f}-{every[-1 - edge]:.0f})"
    for name in sorted({"int8", "bfloat16", "float32"} - cells[0].arithmetic_gop_per_s.keys()):
        yield f"{name}: no such instruction here; where it is the measure, MFU is left out"


def layer_lines(cells: list[Cell]) -> Iterator[str]:
    """The linears of one layer together: what share of the bound they reach, by format and rows."""
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        if cell.kernel == "linear" and cell.shape in LAYER_SHAPES:
            groups.setdefault((cell.format, cell.rows), []).append(cell)
    whole = {key: group for key, group in groups.items() if len(group) == len(LAYER_SHAPES)}
    all_rows = sorted({rows for _, rows in whole})
    if not all_rows:
        return
    yield "| a layer's linears by rows: µs, share of the bound | " + " | ".join(map(str, all_rows)) + " |"
    yield "|---" * (1 + len(all_rows)) + "|"
    for name in dict.fromkeys(name for name, _ in whole):
        yield f"| {name} | " + " | ".join(layer_cell(whole.get((name, rows), [])) for rows in all_rows) + " |"


def layer_cell(group: list[Cell]) -> str:
    if not group:
        return ""
    time_us = sum(median(cell.time_us) for cell in group)
    least_us = sum(median(cell.time_us) * median(cell.share) for cell in group)
    bounds = "/".join(dict.fromkeys(cell.bound for cell in group))
    return f"{time_us:.0f}, {100 * least_us / time_us:.0f} % of {bounds}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7, help="of each cell")
    parser.add_argument("--isa", help="kernels of this instruction set, such as portable; default: the fastest")
    parser.add_argument("--kernel", nargs="+", choices=KERNELS, help="default: all")
    parser.add_argument("--format", nargs="+", choices=FORMATS, help="of weights, KV or activations; default: all")
    parser.add_argument("--rows", nargs="+", type=int, help="only these numbers of rows")
    parser.add_argument("--out", type=Path, help="JSON lines: a header, then a line a cell with every repeat")
    parser.add_argument("--build", type=Path, default=BUILD, help="folder for objects and program")
    return parser.parse_args()


def main() -> None:
    options = parse()
    cells: list[Cell] = []
    about = {"machine": machine(), "versions": versions(), "threads": options.threads}
    lines = [json.dumps(about)]
    program = build(options.build)
    print(table_line(HEADER), "|" + "|".join("-" * (width + 2) for width in WIDTHS) + "|", sep="\n", flush=True)
    for cell in cells_of(program, options):
        cells.append(cell)
        lines.append(json.dumps(cell.__dict__ | cell.figures()))
        print(table_line(cell.columns()), flush=True)
    print("", *layer_lines(cells), "", *peak_lines(cells), sep="\n")
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except BuildError as error:
        sys.exit(str(error))
