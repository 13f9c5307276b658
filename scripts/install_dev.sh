#!/bin/sh
# Adds what tests and checks need (the extra `dev`) to a .venv that already runs. PyTorch goes first and alone, at the
# version the extra pins, so that no other requirement has a say in which build of it is taken.
set -eu
pip=".venv/bin/pip --disable-pip-version-check"

echo "installing development tools (PyTorch is the large one)"
.venv/bin/python -c '
import tomllib
extra = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"]
print(*extra, sep="\n")' > .venv/dev-requirements.txt
$pip install --quiet "$(grep '^torch==' .venv/dev-requirements.txt)"
$pip install --quiet -r .venv/dev-requirements.txt
