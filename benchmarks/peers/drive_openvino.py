"""OpenVINO GenAI's turn, in process: its continuous batching pipeline, step by step."""

import numpy as np
import openvino
import openvino_genai
from driver import About, InProcess, Turn, take_turn

CACHE_GB = 3
MAX_NUM_SEQS = 128
MAX_NUM_BATCHED_TOKENS = 256  # Its default: prompts are cut into chunks of this many tokens.


class OpenvinoEngine:
    """Requests as handles that are read after every step."""

    def __init__(self, pipeline: openvino_genai.ContinuousBatchingPipeline) -> None:
        self._pipeline = pipeline
        self._num_submitted = 0
        self._handles: dict[int, openvino_genai.GenerationHandle] = {}
        self._missing: dict[int, int] = {}

    def submit(self, prompt: list[int], num_outputs: int) -> int:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_outputs
        config.ignore_eos = True
        config.do_sample = False
        key = self._num_submitted
        self._num_submitted += 1
        ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
        self._handles[key] = self._pipeline.add_request(key, ids, config)
        self._missing[key] = num_outputs
        return key

    def step(self) -> list[tuple[int, int]]:
        self._pipeline.step()
        return [(key, num) for key in list(self._handles) if (num := self._read(key))]

    def _read(self, key: int) -> int:
        """How many new tokens a request has; its handle is dropped with the last."""
        handle = self._handles[key]
        num = 0
        while handle.can_read():
            num += sum(len(output.generated_ids) for output in handle.read().values())
        self._missing[key] -= num
        if not self._missing[key]:
            del self._handles[key]
        return num


def load(turn: Turn) -> InProcess:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GB
    scheduler.max_num_seqs = MAX_NUM_SEQS
    scheduler.max_num_batched_tokens = MAX_NUM_BATCHED_TOKENS
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    properties = {"INFERENCE_NUM_THREADS": turn.num_threads}
    folder = turn.peers / "models" / f"openvino-{turn.format_name}"
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
    flags = f"{properties}, max_num_batched_tokens {MAX_NUM_BATCHED_TOKENS}, dynamic_split_fuse, no prefix caching"
    about = About(openvino_genai.__version__, str(turn.options["weights"]), "u8 (default)", "in process", flags)
    return InProcess(OpenvinoEngine(pipeline), about)


if __name__ == "__main__":
    take_turn(load)
