"""Starts a real server around the scripted engine: ``python serve_scripted.py '{"port": 0}' '{"step_s": 0.01}'``."""

import json
import os
import sys

import scripted_text
from paceline.config import EngineConfig, ServeConfig
from paceline.errors import PacelineError
from paceline.server.start import serve_until_stopped

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    os.environ["SCRIPTED_ENGINE"] = sys.argv[2]
    config = ServeConfig(
        engine=EngineConfig(model="scripted"),
        engine_factory="scripted_engine:build_from_environment",
        **{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()},
    )
    try:
        sys.exit(serve_until_stopped(config, scripted_text.build))
    except PacelineError as error:
        sys.exit(error.message)
