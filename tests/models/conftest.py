"""The backends every test of a model's numbers runs on."""

import importlib.util
from typing import Any

import pytest
import torch

from paceline.ops.protocol import Backend
from paceline.ops.reference import ReferenceBackend

# Tiny models gain nothing from threads, and lose much where other work has the cores.
torch.set_num_threads(1)

BACKENDS = ["reference"]
if importlib.util.find_spec("paceline.ops._native") is not None:
    BACKENDS.append("cpu")


@pytest.fixture(params=BACKENDS)
def backend(request: Any) -> Backend:
    if request.param == "reference":
        return ReferenceBackend()
    from paceline.ops.cpu import CpuBackend

    return CpuBackend(num_threads=1)
