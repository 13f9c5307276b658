#!/bin/sh
# Makes .venv with the first Python that is new enough. PYTHON=... chooses another.
set -eu

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

for python in ${PYTHON:-python3 python python3.14 python3.13 python3.12 python3.11}; do
  if new_enough "$python"; then
    echo "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv || {
      rm -rf .venv
      echo "error: '$python -m venv' failed; on Debian and Ubuntu: apt install python3-venv python3-dev" >&2
      exit 1
    }
    exit 0
  fi
done
echo "error: Python 3.11 or newer is needed and none of '${PYTHON:-python3, python, python3.11 ... python3.14}' is" >&2
echo "       install one, or name it: make PYTHON=/path/to/python" >&2
exit 1
