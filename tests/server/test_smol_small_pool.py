"""B023 on the real server: a request larger than the whole pool."""

from collections.abc import Iterator

import pytest

from running_server import RunningServer, serve_model
from smol_engine import BLOCK_BYTES, MODEL


@pytest.fixture(scope="module")
def small() -> Iterator[RunningServer]:
    """49 blocks of 16, context 4096."""
    server = serve_model(MODEL, "--max-model-len", "4096", "--kv-memory", str(49 * BLOCK_BYTES))
    yield server
    assert server.stop() == 0


def test_b023_a_prompt_larger_than_the_pool_is_refused_and_the_next_is_served(small: RunningServer) -> None:
    """B023: five prompts of 1002 tokens, as ids and as text, then one of 20."""
    prompts: list[object] = [list(range(1000 + k, 2002 + k)) for k in range(4)]
    for prompt in [*prompts, " a" * 1002]:
        response = small.post("completions", {"model": MODEL, "prompt": prompt, "max_tokens": 16})
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
        assert "1002 " in error["message"]
        assert " 784 " in error["message"]
    served = small.post("completions", {"model": MODEL, "prompt": list(range(1000, 1020)), "max_tokens": 16})
    assert served.status_code == 200
    assert served.json()["usage"]["prompt_tokens"] == 20
