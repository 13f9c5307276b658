"""vLLM's turn, in process: its V1 engine on the CPU, step by step."""

import os
import sys

# Read when vLLM is imported: engine and worker in this process, nothing sent home, nothing fetched.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "3",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
os.environ |= ENVIRONMENT

import vllm  # noqa: E402
from driver import About, InProcess, Turn, take_turn  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.sampling_params import RequestOutputKind, SamplingParams  # noqa: E402
from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402

MAX_MODEL_LEN, MAX_NUM_SEQS = 8192, 128


class VllmEngine:
    """Requests whose outputs come as what is new."""

    def __init__(self, engine: LLMEngine) -> None:
        self._engine = engine
        self._num_submitted = 0

    def submit(self, prompt: list[int], num_outputs: int) -> int:
        key = self._num_submitted
        self._num_submitted += 1
        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=num_outputs,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self._engine.add_request(str(key), {"prompt_token_ids": prompt}, sampling)
        return key

    def step(self) -> list[tuple[int, int]]:
        # It may lengthen the id it was given, after a dash.
        outputs = self._engine.step()
        return [(int(output.request_id.split("-")[0]), len(output.outputs[0].token_ids)) for output in outputs]


def load(turn: Turn) -> InProcess:
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{turn.num_threads - 1}"
    folder = turn.peers / "models" / str(turn.options["folder"])
    arguments = EngineArgs(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    engine = LLMEngine.from_engine_args(arguments)
    chunk = engine.vllm_config.scheduler_config.max_num_batched_tokens
    preload = os.environ.get("LD_PRELOAD", "none")
    plug_in = ", zentorch" if turn.options["zentorch"] else ""
    flags = f"torch.compile (default){plug_in}, max_num_batched_tokens {chunk} (default), preloaded: {preload}"
    platform = vllm.platforms.current_platform
    assert platform.is_zen_cpu() == turn.options["zentorch"], f"vLLM chose {type(platform).__name__}"
    about = About(vllm.__version__, str(turn.options["weights"]), "bfloat16 (default)", "in process", flags)
    return InProcess(VllmEngine(engine), about)


if __name__ == "__main__":
    take_turn(load)
    sys.stdout.flush()
    os._exit(0)  # Its threads hold up an ordinary exit.
