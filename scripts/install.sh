#!/bin/sh
# Installs this checkout into .venv, editable, and compiles the native kernels. What builds them is installed beside
# the project instead of in a throw-away environment, so that a changed kernel recompiles in seconds.
set -eu
pip=".venv/bin/pip --disable-pip-version-check"
python=.venv/bin/python

echo "installing paceline and compiling its native kernels"
$python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
  > .venv/build-requirements.txt
$pip install --quiet -r .venv/build-requirements.txt
# cmake and ninja, where the machine has none that is new enough.
$python -c 'from scikit_build_core.build import get_requires_for_build_editable as f; print(*f({}), sep="\n")' \
  > .venv/build-tools.txt
$pip install --quiet -r .venv/build-tools.txt
$pip install --quiet --no-build-isolation --editable . 2> .venv/install.log || { cat .venv/install.log >&2; exit 1; }

if ! $python -c 'import paceline.ops._native' 2> .venv/native-import.log; then
  cat >&2 <<WARNING

  ****************************************************************************************************
  WARNING: the native kernels were not built. Paceline runs on its NumPy reference: correct, and slow
  beyond use for more than a trial. Remedy: install a C++20 compiler and Python's headers
  (Debian, Ubuntu: apt install g++ python3-dev), then 'make clean' and try again.
  Python says: $(tail -n 1 .venv/native-import.log)
  The build says: .venv/bin/pip install --verbose --no-build-isolation --editable .
  ****************************************************************************************************

WARNING
fi
