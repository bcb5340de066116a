#!/usr/bin/env bash
# What a release publishes for Python: into build/release the source, a wheel for every machine, and one for this machine with the
# compiled code of pipelines, which auditwheel has tagged for the Linux systems that it fits. Needs a C compiler.
#   scripts/build-release.sh notes    prints what the changelog says of this version instead
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
if [ "${1:-}" = notes ]; then
  awk -v heading="## [$version]" 'index($0, "## ") == 1 { inside = index($0, heading) == 1; next } inside' CHANGELOG.md
  exit
fi
out=build/release tools=build/release-tools
rm -rf "$out" "$tools" && mkdir -p "$out"
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" --quiet --disable-pip-version-check install --require-hashes --requirement requirements/release.txt
PATH=$PWD/$tools/bin:$PATH
hatchling build -t sdist -d "$out" > /dev/null
tar -xzf "$out/ottla-$version.tar.gz" -C "$out" # wheels are made of what is published as source
wheel() { (cd "$out/ottla-$version" && OTTLA_COMPILED=$1 hatchling build -t wheel -d "../$2" > /dev/null); }
wheel off . && wheel on compiled
if ! said=$(auditwheel repair --wheel-dir "$out" "$out"/compiled/*.whl 2>&1); then
  printf '%s\n' "$said" "no wheel with compiled code was made: is there a C compiler?" >&2
  exit 1
fi
rm -rf "$out/compiled" "${out:?}/ottla-$version"
ls "$out"
