"""`paceline bench report`: draw recorded results again, several of one kind side by side, or their plots as PNGs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.bench.endpoint import BenchError
from paceline.bench.jsonl import read_result
from paceline.bench.merge import merge_results
from paceline.bench.report import NEEDS_BROWSER, write_pngs, write_report
from paceline.bench.table import print_result


def report(
    files: Annotated[list[Path], typer.Argument(metavar="RESULT.jsonl …", help="Result files of one experiment.")],
    out: Annotated[Path | None, typer.Option(help="Where the report goes. Default: beside the first file.")] = None,
    png: Annotated[Path | None, typer.Option(help="A folder for PNGs of the plots; needs Chromium.")] = None,
) -> None:
    """Draw recorded results again, side by side when there are several."""
    result = merge_results({name: read_result(path) for name, path in zip(names_of(files), files, strict=True)})
    target = out or files[0].with_suffix(".html")
    write_report(target, result)
    print_result(Console(), result)
    typer.echo(f"{target} (plots)")
    if png is None:
        return
    try:
        written = write_pngs(target, result, png)
    except OSError as error:
        raise BenchError(f"--png {png}: {error}") from error
    typer.echo(f"{len(written)} PNGs in {png}" if written else NEEDS_BROWSER)


def names_of(files: Sequence[Path]) -> list[str]:
    """What the results are called beside each other: the files' names, or whole paths where names are the same."""
    stems = [path.stem for path in files]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in files]
