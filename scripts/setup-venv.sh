#!/usr/bin/env bash
# Makes .venv with everything the make targets need, from the hash-locked lists in requirements/.
# Run by `make setup`; does nothing when .venv is already what the lists say.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/.requirements.sha256
wanted=$(cat requirements/uv.txt requirements/dev.txt pyproject.toml | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "ottla needs Python 3.11 or later: install it (Debian: apt-get install python3) or set PYTHON=/path/to/python3.11" >&2
  exit 1
fi
if [ ! -x .venv/bin/python ] && ! "$python" -m venv .venv; then
  echo "the Python module venv is missing: apt-get install python3-venv" >&2
  exit 1
fi
echo "setting up .venv (once, about a minute)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
.venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes requirements/dev.txt requirements/uv.txt
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
echo "$wanted" > "$stamp"
