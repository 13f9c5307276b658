"""`paceline eval`: perplexity of a text, and what another format, or another model, makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from paceline.config import EngineConfig, parse_count
from paceline.errors import ConfigError
from paceline.offline.grouped import grouped
from paceline.offline.judged_model import JudgedModel, check_same_vocabulary, first_tokens, open_judged
from paceline.offline.judgement import Comparison, Scores, compare, score
from paceline.offline.tables import print_facts, shown
from paceline.offline.windows import Window, cut

MAX_TEXT_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """What is compared with what, over which windows."""

    text: Annotated[Path, typer.Option(help="The text, UTF-8.")]
    against: Annotated[str | None, typer.Option(help="Model to compare with MODEL, of the same vocabulary.")] = None
    window: Annotated[str, typer.Option(help="Tokens a model sees at a time.")] = "1024"
    stride: Annotated[str | None, typer.Option(help="Tokens from a window to the next. Default: half a window.")] = None
    quantization: Annotated[str | None, typer.Option(help="int8; of both models. Default: as in the file.")] = None
    against_quantization: Annotated[str | None, typer.Option(help="Of the compared model alone.")] = None
    kv_cache_dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or int8; of both models.")] = "auto"
    against_kv_cache_dtype: Annotated[str | None, typer.Option(help="Of the compared model alone.")] = None
    isa: Annotated[str | None, typer.Option(help="avx512, avx2 or portable; of both. Default: the best here.")] = None
    against_isa: Annotated[str | None, typer.Option(help="Of the compared model alone.")] = None
    threads: Annotated[int | None, typer.Option(help="Compute threads. Default: the cores we may use.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False

    @property
    def has_candidate(self) -> bool:
        """Whether there is something to compare with: another model, or MODEL itself in another way."""
        own = (self.against, self.against_quantization, self.against_kv_cache_dtype, self.against_isa)
        return any(option is not None for option in own)

    def reference(self, model: str) -> EngineConfig:
        """MODEL's options. Raises ConfigError."""
        return EngineConfig(
            model=model,
            quantization=self.quantization,
            kv_cache_dtype=self.kv_cache_dtype,
            isa=self.isa,
            num_threads=self.threads,
        )

    def candidate(self, model: str) -> EngineConfig:
        """The compared model's: MODEL's, but for what was said of it alone. Raises ConfigError."""
        return replace(
            self.reference(self.against or model),
            quantization=self.against_quantization or self.quantization,
            kv_cache_dtype=self.against_kv_cache_dtype or self.kv_cache_dtype,
            isa=self.against_isa or self.isa,
        )


@grouped
def evaluate(
    model: Annotated[str, typer.Argument(help="A short name, a path, or a name on the hub: the reference.")],
    options: EvalOptions,
) -> None:
    """Perplexity of a text under MODEL; with another format or model: how far that one is from it."""
    text = read_text(options.text)
    window = parse_count("--window", options.window)
    stride = window // 2 if options.stride is None else parse_count("--stride", options.stride)
    reference = open_judged(options.reference(model), window)
    tokens = reference.tokenizer.encode(text, add_special_tokens=False)
    windows = list(cut(tokens, first_tokens(reference.tokenizer), window, stride))
    about: dict[str, object] = {"model": model, "text": str(options.text), "window": window, "stride": stride}
    if not options.has_candidate:
        report(about | scores_fields(scored(reference, windows)), options.as_json)
        return
    candidate = open_judged(options.candidate(model), window)
    check_same_vocabulary(reference, candidate, text)
    about |= {"against": options.against or model}
    report(about | comparison_fields(compared(reference, candidate, windows)), options.as_json)


def read_text(path: Path) -> str:
    """The file's text. Raises ConfigError."""
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise ConfigError(f"--text {path} has {path.stat().st_size} bytes; at most {MAX_TEXT_BYTES} are read")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text must be a readable UTF-8 file, got {str(path)!r}: {error}") from None


def scored(model: JudgedModel, windows: Sequence[Window]) -> Scores:
    """One model over all windows, with a progress bar."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("scoring", total=num_scored(windows))
        return score(model.logits, windows, lambda num_tokens: progress.advance(task, num_tokens))


def compared(reference: JudgedModel, candidate: JudgedModel, windows: Sequence[Window]) -> Comparison:
    """Two models over all windows, with a progress bar."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("comparing", total=num_scored(windows))
        return compare(
            reference.logits, candidate.logits, windows, lambda num_tokens: progress.advance(task, num_tokens)
        )


def num_scored(windows: Sequence[Window]) -> int:
    """Tokens that all windows judge."""
    return sum(len(window.tokens) - window.first_scored for window in windows)


def scores_fields(scores: Scores) -> dict[str, object]:
    """One model's numbers."""
    return {
        "num_tokens": len(scores.surprisals),
        "perplexity": scores.perplexity,
        "perplexity_error": scores.perplexity_error,
    }


def comparison_fields(comparison: Comparison) -> dict[str, object]:
    """Both models' numbers, and what lies between them."""
    return {
        **scores_fields(comparison.reference),
        "against_perplexity": comparison.candidate.perplexity,
        "against_perplexity_error": comparison.candidate.perplexity_error,
        "perplexity_ratio": comparison.perplexity_ratio,
        "perplexity_ratio_error": comparison.perplexity_ratio_error,
        "top_agreement": comparison.top_agreement,
        "mean_kl": comparison.mean_kl,
        "p99_kl": comparison.p99_kl,
        "max_kl": comparison.max_kl,
    }


def report(fields: dict[str, object], as_json: bool) -> None:
    """As JSON, or as lines for people."""
    if as_json:
        typer.echo(msgspec.json.encode(fields))
        return
    facts = {
        "model": shown(str(fields["model"])),
        "judged": f"{fields['num_tokens']:,} tokens in windows of {fields['window']:,}, {fields['stride']:,} apart",
        "perplexity": f"{fields['perplexity']:.4f} ± {fields['perplexity_error']:.4f}",
    }
    if "against" in fields:
        facts |= {
            "against": shown(str(fields["against"])),
            "its perplexity": f"{fields['against_perplexity']:.4f} ± {fields['against_perplexity_error']:.4f}",
            "ratio": f"{fields['perplexity_ratio']:.5f} ± {fields['perplexity_ratio_error']:.5f}",
            "same best token": f"{fields['top_agreement']:.2%} of positions",
            "KL(model‖against)": f"mean {fields['mean_kl']:.6f}, p99 {fields['p99_kl']:.6f}, "
            f"largest {fields['max_kl']:.6f} nats",
        }
    print_facts(facts)
