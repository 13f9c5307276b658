"""B083: hostile GGUF files cost one clear error, little time and little memory; damaged ones never load wrongly."""

import random
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from hostile_files import HOSTILE, WIDTH, file_bytes

from paceline.errors import CheckpointError
from paceline.models.gguf import parse_gguf, read_gguf
from paceline.models.gguf_checkpoint import GgufCheckpoint


def test_the_file_all_others_are_made_from_is_valid(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(file_bytes())
    checkpoint = GgufCheckpoint(read_gguf(tmp_path / "model.gguf"))
    assert checkpoint.spec.num_layers == 1
    assert checkpoint.tensor("layers.0.query.weight").num_rows == WIDTH


@pytest.mark.parametrize("name", HOSTILE)
def test_b083_hostile_file_is_refused(name: str, tmp_path: Path) -> None:
    data, said = HOSTILE[name]
    (tmp_path / "model.gguf").write_bytes(data)
    before_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    started_s = time.perf_counter()
    with pytest.raises(CheckpointError, match=said) as caught:
        GgufCheckpoint(read_gguf(tmp_path / "model.gguf"))
    assert time.perf_counter() - started_s < 2.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before_bytes < 200e6
    assert "model.gguf" in caught.value.message or "model's" in caught.value.message
    assert len(caught.value.message) < 600
    assert "\n" not in caught.value.message


def test_b083_random_one_byte_flips_never_load_wrongly() -> None:
    """Each flip is an error, or a load whose tensors all lie inside the file, each on bytes of its own."""
    original = file_bytes()
    generator = random.Random(83)
    num_errors = 0
    for _ in range(20_000):
        data = bytearray(original)
        # The data holds anything; flip what is parsed nine times of ten.
        place = generator.randrange(len(data) if generator.random() < 0.1 else 1_500)
        data[place] ^= generator.randrange(1, 256)
        try:
            file = parse_gguf(bytes(data), Path("flipped.gguf"))
            GgufCheckpoint(file)
        except CheckpointError:
            num_errors += 1
            continue
        spans = sorted((tensor.data.ctypes.data, tensor.data.nbytes) for tensor in file.tensors.values())
        whole = np.frombuffer(memoryview(next(iter(file.tensors.values())).data.base), np.uint8)
        first, end = whole.ctypes.data, whole.ctypes.data + len(data)
        for start, num_bytes in spans:
            assert first <= start
            assert start + num_bytes <= end
            first = start + num_bytes
    assert 5_000 < num_errors < 20_000
