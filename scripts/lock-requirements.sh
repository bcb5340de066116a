#!/usr/bin/env bash
# Locks every dependency with its hashes. Records no registry address.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
compile() { "$uv" pip compile --quiet --generate-hashes --no-header --no-emit-index-url --python-version 3.11 "$@"; }
compile pyproject.toml -o requirements/runtime.txt
compile --extra demo pyproject.toml -o requirements/demo.txt
compile --extra operator pyproject.toml -o requirements/operator.txt
compile --extra dev pyproject.toml -o requirements/dev.txt
echo uv | compile - -o requirements/uv.txt
