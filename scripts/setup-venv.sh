#!/usr/bin/env bash
# Makes .venv with everything the make targets need, from the hash-locked lists in requirements/.
# Run by `make setup`; does nothing when .venv is already what the lists say. With --spark also Spark, which then stays:
# half a gigabyte that only the demo's second act, the tests of pipelines and the benchmark need.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 9< scripts/setup-venv.sh
if command -v flock > /dev/null; then flock 9; fi # another one that is under way in this checkout is waited for
stamp=.venv/.requirements.sha256
with_spark=.venv/.with-spark
lists=(requirements/dev.txt requirements/uv.txt)
if [ "${1:-}" = --spark ] || [ -e "$with_spark" ]; then lists+=(requirements/pipeline.txt); fi
compiled=(hatch_build.py pipeline/ottla_pipeline/compiled/*.[ch] pipeline/ottla_pipeline/compiled/build.py)
wanted=$(cat "${lists[@]}" pyproject.toml "${compiled[@]}" | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "ottla needs Python 3.11 or later: install it (Debian: apt-get install python3) or set PYTHON=/path/to/python3.11" >&2
  exit 1
fi
# Without pip it is what a run that was cut off has left, or one that found no python3-venv.
if ! .venv/bin/python -m pip --version > /dev/null 2>&1 && ! "$python" -m venv --clear .venv; then
  echo "the Python module venv is missing: apt-get install python3-venv" >&2
  exit 1
fi
export UV_HTTP_TIMEOUT=120
again() { # an index has its bad moments; what is fetched already is not fetched again
  local attempt
  for attempt in 1 2 3; do
    if "$@"; then return; fi
    [ "$attempt" = 3 ] || sleep 5
  done
  return 1
}
pip() { again .venv/bin/python -m pip "$@"; }
with_hashes=(--disable-pip-version-check --require-hashes)
echo "setting up .venv (once, about a minute)"
pip install --quiet "${with_hashes[@]}" -r requirements/uv.txt
if [ ${#lists[@]} = 3 ] && ! .venv/bin/python -c 'import pyspark' 2> /dev/null; then
  # By pip, for its progress bar: pyspark comes as source, whose download uv does not show. It is built by the locked
  # setuptools that the line above installed, not by one of its own choice.
  echo "fetching Spark (once, 450 MB, about a minute)"
  only_spark=$(mktemp)
  trap 'rm -f "$only_spark"' EXIT
  awk '/^[^ ]/ { is_spark = /^(pyspark|py4j)==/ } is_spark' requirements/pipeline.txt > "$only_spark"
  pip install --timeout 60 "${with_hashes[@]}" --no-deps --no-build-isolation --use-pep517 -r "$only_spark"
fi
again .venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes --no-build-isolation "${lists[@]}"
again .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
if [ -e .venv/.with-kerberos ]; then # no list above names gssapi
  scripts/fetch-kerberos.sh || echo "setup-venv: the tests with Kerberos are skipped and counted"
fi
if [ ${#lists[@]} = 3 ]; then touch "$with_spark"; fi
echo "$wanted" > "$stamp"
