#!/usr/bin/env bash
# Installs what the full test run and the benchmark need from outside Python: Java 17, Maven and kcat (Debian
# packages, only what is missing, only as root on Debian) and the jars of fetch-jars.sh. Otherwise one line names what
# is missing. With --check nothing is installed: it prints what is missing and ends with 1, or with 0 when all is there.
set -euo pipefail
cd "$(dirname "$0")"
cache=${OTTLA_CACHE:-$HOME/.cache/ottla}

packages=()
command -v javac > /dev/null || packages+=(openjdk-17-jdk-headless) # javac: a test compiles a small program
command -v mvn > /dev/null || packages+=(maven)
command -v kcat > /dev/null || packages+=(kcat)

jars_are_current() {
  local pair wanted
  for pair in kafka:jars zookeeper:zookeeper-jars spark-connector:spark-connector-jars; do
    wanted=$(sha256sum < "jars/${pair%%:*}/pom.xml" | cut -d' ' -f1)
    [ "$(cat "$cache/${pair##*:}/.pom.sha256" 2> /dev/null)" = "$wanted" ] || return 1
  done
}

case ${1:-} in
  --check)
    missing=("${packages[@]}")
    jars_are_current || missing+=("the jars of scripts/fetch-jars.sh")
    if [ ${#missing[@]} -gt 0 ]; then
      printf -v list '%s, ' "${missing[@]}"
      echo "missing: ${list%, } (scripts/install-system.sh as root on Debian installs all of it)"
      exit 1
    fi
    exit 0
    ;;
  "") ;;
  *)
    echo "usage: install-system.sh [--check]" >&2
    exit 2
    ;;
esac

if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "install-system: missing Debian packages, to be installed as root: apt-get install ${packages[*]}" >&2
    exit 1
  fi
  echo "install-system: installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } > /dev/null; then
    echo "install-system: apt-get could not install ${packages[*]}" >&2
    exit 1
  fi
fi
exec ./fetch-jars.sh
