#!/usr/bin/env bash
# Wheels of everything an image of ottla needs, for its Dockerfile: into build/wheels for brokers and the operator, with the
# argument pipeline into build/wheels-pipeline for drivers of pipelines; ottla's own into the folder ottla below.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-operator}" in
  # without the compiled code of pipelines, which this image does not run: the wheel is for every machine
  operator) wheels=build/wheels requirements=requirements/operator.txt compiled=off as_source=() ;;
  # pyspark comes as source, and is built by the locked setuptools, as in setup-venv.sh
  pipeline)
    wheels=build/wheels-pipeline requirements=requirements/pipeline.txt compiled=on
    as_source=(--no-build-isolation --use-pep517)
    ;;
  *) echo "usage: $0 [operator|pipeline]" >&2 && exit 2 ;;
esac
scripts/setup-venv.sh
stamp=$wheels/.requirements.sha256 # what others publish is fetched again only when the list has changed
wanted=$(sha256sum < "$requirements" | cut -d' ' -f1)
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
if [ "$(cat "$stamp" 2> /dev/null)" != "$wanted" ]; then
  rm -rf "$wheels"
  mkdir -p "$wheels"
  pip wheel --require-hashes "${as_source[@]}" --wheel-dir "$wheels" --requirement "$requirements"
  echo "$wanted" > "$stamp"
fi
rm -rf "$wheels/ottla"
OTTLA_COMPILED=$compiled pip wheel --no-deps --no-build-isolation --wheel-dir "$wheels/ottla" .
