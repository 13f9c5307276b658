"""Who is measured: each engine in each of its formats, how its process is started, and about how long it takes."""

import os
import sys
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path

from work import Work

HERE = Path(__file__).resolve().parent
OURS = "paceline"

# Seconds of a measurement (warm-up, probe, the work) by an engine of speed 1, on two cores of a Zen 4.
WORK_S = {
    "decode-1": 4.0,
    "decode-8": 5.0,
    "decode-32": 9.0,
    "decode-64": 16.0,
    "prefill-512": 2.0,
    "prefill-8x512": 7.0,
    "prefill-2048": 5.0,
    "hol": 15.0,
}

# Where arithmetic binds.
MANY = ("decode-32", "decode-64", "prefill-512", "prefill-8x512", "prefill-2048", "hol")


@dataclass(frozen=True)
class Peer:
    """An engine in one format. `environment`: the folder of its Python, None for the one that runs this.

    `starts_slowly`: it does all works of a round in one turn; others start anew for each work. `contends`: the works at
    which it was seen near the best of its kind, None: all.
    """

    engine: str
    format_name: str
    script: str
    environment: str | None = None
    options: dict[str, object] = field(default_factory=dict)
    start_s: float = 2.0
    slowness: float = 1.0
    starts_slowly: bool = False
    contends: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return f"{self.engine}:{self.format_name}"

    def python(self, peers: Path) -> str:
        return str(peers / self.environment / "bin" / "python") if self.environment else sys.executable

    def is_installed(self, peers: Path) -> bool:
        needed = peers / "llama.cpp" / "bin" / "llama-server" if self.engine == "llama.cpp" else self.python(peers)
        return Path(needed).exists()

    def turn_s(self, works: list[Work]) -> float:
        """About how long a turn takes."""
        return self.start_s + sum(WORK_S[work.name] for work in works) * self.slowness


def _ours(format_name: str, contends: tuple[str, ...] | None = None, **options: object) -> Peer:
    return Peer(OURS, format_name, "drive_paceline.py", options=options, start_s=1.5, slowness=0.7, contends=contends)


def _llama(format_name: str, weights: str, slowness: float, contends: tuple[str, ...]) -> Peer:
    options: dict[str, object] = {"weights": weights}
    return Peer("llama.cpp", format_name, "drive_llama.py", options=options, slowness=slowness, contends=contends)


def _openvino(format_name: str, weights: str, contends: tuple[str, ...] | None) -> Peer:
    options: dict[str, object] = {"weights": weights}
    return Peer("openvino", format_name, "drive_openvino.py", "openvino", options, start_s=4.0, contends=contends)


def _vllm(format_name: str, weights: str, contends: tuple[str, ...], zentorch: bool = False) -> Peer:
    options: dict[str, object] = {"weights": weights, "folder": format_name.removesuffix("-zen"), "zentorch": zentorch}
    plain = Peer("vllm", format_name, "drive_vllm.py", "vllm", options, contends=contends)
    return replace(plain, start_s=65.0, slowness=1.1, starts_slowly=True)


PEERS = {
    peer.name: peer
    for peer in (
        _ours("q4_1", ("decode-1",), file="q4_1.gguf"),
        _ours("q4_0", ("decode-1", "decode-8"), file="q4_0.gguf"),
        _ours("q4_0-kv8", ("decode-8",), file="q4_0.gguf", kv_cache_dtype="int8"),
        _ours("int8", MANY, file="q4_1.gguf", quantization="int8"),
        _ours("int8-kv8", ("decode-8", *MANY), file="q4_1.gguf", quantization="int8", kv_cache_dtype="int8"),
        _llama("q4_0", "Q4_0, requantized from the file", 1.7, ("decode-1", "decode-8")),
        _llama("q4_1", "Q4_1, the file as it is", 3.2, ("decode-1",)),
        _llama("q8_0", "Q8_0, requantized from the file", 1.8, ("decode-1",)),
        _openvino("int4", "int4 asymmetric, groups of 32; embedding int8", None),
        _openvino("int8", "int8 asymmetric, per channel", ()),
        _vllm(
            "w8a8",
            "int8 per channel (round to nearest), activations per token; embedding bfloat16",
            ("decode-32", "decode-64", "prefill-8x512"),
        ),
        _vllm("bf16", "bfloat16", ()),
        _vllm("bf16-zen", "bfloat16", (), zentorch=True),
    )
}


def chosen(names: list[str]) -> list[Peer]:
    """The peers of names such as `openvino:int4` or, for all formats, `openvino`. Raises ValueError."""
    peers = []
    for name in names:
        found = [peer for peer in PEERS.values() if name in (peer.name, peer.engine)]
        if not found:
            raise ValueError(f"no peer {name!r}; there are {', '.join(PEERS)}")
        peers += [peer for peer in found if peer not in peers]
    return peers


def environment_of(peer: Peer, peers: Path) -> dict[str, str]:
    """The environment as it is; vLLM's guide asks for tcmalloc and Intel's OpenMP to be loaded first. It takes AMD's
    plug-in when it can import it.
    """
    if peer.engine != "vllm":
        return dict(os.environ)
    libraries = glob("/usr/lib/*/libtcmalloc_minimal.so.4") + glob(str(peers / "vllm" / "lib" / "libiomp5.so"))
    plug_in = {"PYTHONPATH": str(peers / "zentorch")} if peer.options["zentorch"] else {}
    return dict(os.environ) | {"LD_PRELOAD": ":".join(libraries)} | plug_in
