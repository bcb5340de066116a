#!/usr/bin/env bash
# Wheels of ottla and of everything its image needs, into build/wheels, for the Dockerfile.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup-venv.sh
rm -rf build/wheels
mkdir -p build/wheels
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
pip wheel --require-hashes --wheel-dir build/wheels --requirement requirements/operator.txt
pip wheel --no-deps --no-build-isolation --wheel-dir build/wheels .
