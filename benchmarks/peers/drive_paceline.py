"""Paceline's turn, in process: the file's own format, or what `options` of its engine config say."""

from dataclasses import asdict

from driver import About, InProcess, Turn, take_turn

from paceline import __version__
from paceline.config import EngineConfig
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine

GREEDY = SamplingParams(temperature=0.0)
KV_BYTES = 1 << 30


class PacelineEngine:
    """The engine as its server runs it, without the server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._num_submitted = 0

    def submit(self, prompt: list[int], num_outputs: int) -> int:
        key = self._num_submitted
        self._num_submitted += 1
        stop = StopRule(num_outputs)
        self._engine.submit(Request(RequestId(key), token_array(prompt), stop, GREEDY, arrival_s=float(key)))
        return key

    def step(self) -> list[tuple[int, int]]:
        return [(output.request_id, len(output.tokens)) for output in self._engine.step()]


def load(turn: Turn) -> InProcess:
    file = turn.peers / "models" / str(turn.options.pop("file"))
    config = EngineConfig(model=str(file), num_threads=turn.num_threads, kv_memory_bytes=KV_BYTES, **turn.options)
    plain = asdict(EngineConfig())
    changed = {name: value for name, value in asdict(config).items() if value != plain[name] and name != "model"}
    weights = f"{file.name} as it is" if config.quantization is None else f"{config.quantization} of {file.name}"
    about = About(__version__, weights, config.kv_cache_dtype, "in process", str(changed))
    return InProcess(PacelineEngine(load_engine(config)), about)


if __name__ == "__main__":
    take_turn(load)
