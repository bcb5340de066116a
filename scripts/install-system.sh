#!/usr/bin/env bash
# Installs what the full test run and the benchmark need from outside Python: Java 17, Maven, kcat and the tools of
# networks and file systems (Debian packages, only what is missing, only as root on Debian) and the jars of
# fetch-jars.sh. Otherwise one line names what is missing. With --check nothing is installed: it prints what is missing
# and ends with 1, or with 0 when all is there.
set -euo pipefail
cd "$(dirname "$0")"
cache=${OTTLA_CACHE:-$HOME/.cache/ottla}

packages=()
need() { command -v "$1" > /dev/null || packages+=("$2"); } # command, Debian package
need javac openjdk-17-jdk-headless # javac: a test compiles a small program
need mvn maven
need kcat kcat
if [ "$(id -u)" = 0 ]; then # for the tests with networks that are cut and disks that fail: root's alone
  need ip iproute2
  need iptables iptables
  need mkfs.ext4 e2fsprogs
  need mount mount
  need openssl openssl
fi

jars_are_current() {
  local pair wanted
  for pair in kafka:jars kafka-streams:kafka-streams-jars zookeeper:zookeeper-jars \
    spark-connector:spark-connector-jars kafka-clients-4:kafka-clients-4-jars kafka-0.8:kafka-0.8-jars \
    kafka-connect:kafka-connect-jars delta:delta-jars postgresql:postgresql-jars; do
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

./install-packages.sh install-system "${packages[@]}"
exec ./fetch-jars.sh
