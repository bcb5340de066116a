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
# One environment: the pipeline's versions are those of the others. pyspark is 4.2.1 because the stock connector's newest
# jar in Maven Central, which tests and the benchmark run beside ours, is for 4.2.
echo "pyspark==4.2.1" | compile --extra pipeline pyproject.toml -c requirements/dev.txt -c - -o requirements/pipeline.txt
# The extra kerberos, which comes as source, and what it is built with (scripts/fetch-kerberos.sh).
printf 'gssapi\ncython\nsetuptools\n' | compile - -c requirements/dev.txt -o requirements/kerberos.txt
# What installs the rest: pyspark comes as source and is built with this setuptools.
printf 'uv\nsetuptools\n' | compile - -c requirements/dev.txt -o requirements/uv.txt
# What a release is built with (scripts/build-release.sh).
printf 'auditwheel\npatchelf\nhatchling\n' | compile - -c requirements/dev.txt -o requirements/release.txt
