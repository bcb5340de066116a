#!/usr/bin/env bash
# Wheels of everything ottla's image needs into build/wheels, ottla's own into build/wheels/ottla, for the Dockerfile.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup-venv.sh
stamp=build/wheels/.requirements.sha256 # what others publish is fetched again only when the list has changed
wanted=$(sha256sum < requirements/operator.txt | cut -d' ' -f1)
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
if [ "$(cat "$stamp" 2> /dev/null)" != "$wanted" ]; then
  rm -rf build/wheels
  mkdir -p build/wheels
  pip wheel --require-hashes --wheel-dir build/wheels --requirement requirements/operator.txt
  echo "$wanted" > "$stamp"
fi
rm -rf build/wheels/ottla
# Without the compiled code of pipelines, which this image does not run: the wheel is for every machine.
OTTLA_COMPILED=off pip wheel --no-deps --no-build-isolation --wheel-dir build/wheels/ottla .
