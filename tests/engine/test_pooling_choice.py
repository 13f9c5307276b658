"""Which pooling an engine serves: the option's, else the checkpoint's own, else the default."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.tiny_checkpoints import make_model, save_model
from paceline.config import EngineConfig
from paceline.core.request import Pooling
from paceline.engine.loading import load_engine
from paceline.errors import CheckpointError, ConfigError

OLD = {"word_embedding_dimension": 64, "pooling_mode_cls_token": False, "include_prompt": True}


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(make_model("llama"), tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(model_path: Path, tmp_path: Path) -> Path:
    """The same model, to add files to."""
    for file in model_path.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "1_Pooling").mkdir()
    return tmp_path


def served(path: Path, pooling_type: str | None = None) -> Pooling:
    config = EngineConfig(model=str(path), max_num_seqs=1, max_num_batched_tokens=16, pooling_type=pooling_type)
    limits = load_engine(config).limits
    assert limits.embedding_width == 64
    return limits.pooling


def declare(folder: Path, values: dict[str, Any]) -> Path:
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(values))
    return folder


def test_without_a_word_it_is_the_default(model_path: Path) -> None:
    assert served(model_path) is Pooling.MEAN


@pytest.mark.parametrize(
    ("values", "pooling"),
    [
        (OLD | {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, Pooling.LAST),
        (OLD | {"pooling_mode_mean_tokens": True}, Pooling.MEAN),
        ({"embedding_dimension": 64, "pooling_mode": "lasttoken"}, Pooling.LAST),
        ({"embedding_dimension": 64, "pooling_mode": "mean"}, Pooling.MEAN),
    ],
)
def test_the_checkpoints_own_choice_is_served(folder: Path, values: dict[str, Any], pooling: Pooling) -> None:
    assert served(declare(folder, values)) is pooling


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (OLD | {"pooling_mode_cls_token": True}, "cls_token"),
        (OLD | {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean_tokens, max_tokens"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({}, "nothing"),
    ],
)
def test_another_choice_stops_the_start_and_the_option_overrules_it(
    folder: Path, values: dict[str, Any], shown: str
) -> None:
    declare(folder, values)
    with pytest.raises(CheckpointError, match=f"pooling by .*{shown}.*--pooling-type"):
        served(folder)
    assert served(folder, "last") is Pooling.LAST


def test_a_layer_after_pooling_stops_the_start(folder: Path) -> None:
    declare(folder, {"pooling_mode": "mean"})
    (folder / "2_Dense").mkdir()
    with pytest.raises(CheckpointError, match="2_Dense"):
        served(folder)


def test_the_option_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match="--pooling-type must be one of last, mean, got 'max'"):
        EngineConfig(pooling_type="max")
