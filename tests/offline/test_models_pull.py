"""`paceline models pull` from a hub on this machine."""

from pathlib import Path

from commands import paceline
from local_hub import COMMIT, LocalHub, local_hub
from tiny_folder import tiny_folder

from models.hostile_files import STRING, file_bytes, with_entry
from models.tiny_checkpoints import make_model, save_model
from paceline.models.resolve import resolve

NAME = "owner/name"


def hub_env(hub: LocalHub, cache: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}


def test_only_what_is_read_is_pulled_and_can_be_inspected(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hub")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "README.md").write_text("words")
    with local_hub(NAME, folder) as hub:
        env = hub_env(hub, tmp_path / "cache")
        done = paceline("models", "pull", NAME, env=env)
        assert done.returncode == 0, done.stderr
        pulled = Path(done.stdout.strip())
        assert {path.name for path in pulled.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
        assert hub.files_sent[0] == "config.json"
        assert not {"pytorch_model.bin", "README.md"} & set(hub.files_sent)
        assert len(hub.files_sent) == len(set(hub.files_sent)), "a file was downloaded twice"
    seen = paceline("models", "inspect", NAME, env=env)
    assert seen.returncode == 0, seen.stderr


def test_a_model_that_we_do_not_serve_costs_its_configuration_only(tmp_path: Path) -> None:
    with local_hub(NAME, save_model(make_model("qwen2"), tmp_path / "hub")) as hub:
        done = paceline("models", "pull", NAME, env=hub_env(hub, tmp_path / "cache"))
    assert done.returncode == 2
    assert "'qwen2' is not a family we know" in done.stderr
    assert hub.files_sent == ["config.json"]


def test_a_gguf_file_is_pulled_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "small.gguf").write_bytes(file_bytes())
    (folder / "large.gguf").write_bytes(b"large")
    (folder / "other.gguf").write_bytes(with_entry("general.architecture", STRING, "gemma3"))
    with local_hub(NAME, folder) as hub:
        env = hub_env(hub, tmp_path / "cache")
        done = paceline("models", "pull", NAME, "--file", "small.gguf", env=env)
        assert done.returncode == 0, done.stderr
        assert Path(done.stdout.strip()).read_bytes() == file_bytes()
        assert hub.files_sent == ["small.gguf"]
        missing = paceline("models", "pull", NAME, "--file", "none.gguf", env=env)
        assert missing.returncode == 2
        assert "holds no file 'none.gguf'" in missing.stderr
        whole = paceline("models", "pull", NAME, env=env)
        assert whole.returncode == 2
        assert "--file" in whole.stderr
        foreign = paceline("models", "pull", NAME, "--file", "other.gguf", env=env)
        assert foreign.returncode == 2
        assert "not a family we know" in foreign.stderr


def test_what_can_not_be_had_is_said(tmp_path: Path) -> None:
    with local_hub(NAME, tiny_folder(tmp_path / "hub")) as hub:
        unknown = paceline("models", "pull", "owner/none", env=hub_env(hub, tmp_path / "cache"))
    assert unknown.returncode == 2
    assert "not on the hub" in unknown.stderr
    env = hub_env(hub, tmp_path / "cache") | {"HF_HUB_OFFLINE": "1"}
    offline = paceline("models", "pull", NAME, env=env)
    assert offline.returncode == 2
    assert "HF_HUB_OFFLINE" in offline.stderr
    for done in (unknown, offline):
        assert "Traceback" not in done.stderr
    assert COMMIT not in offline.stderr


def test_the_built_in_model_is_there_already() -> None:
    done = paceline("models", "pull", "smollm2-135m")
    assert done.returncode == 0
    assert done.stdout.strip() == str(resolve("smollm2-135m"))
