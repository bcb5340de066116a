#!/usr/bin/env bash
# Installs what the full test run and the benchmark need from outside Python: Java 17, Maven, kcat and the tools of
# networks and file systems (Debian packages, only what is missing, only as root on Debian) and the jars of
# fetch-jars.sh: all of them, or the sets that are named. Otherwise one line names what is missing.
# install-system.sh [--check] [SET...]: with --check nothing is installed: it prints what is missing and ends with 1, or
# with 0 when all is there.
set -euo pipefail
cd "$(dirname "$0")"

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

if [ "${1:-}" = --check ]; then
  shift
  missing=("${packages[@]}")
  ./fetch-jars.sh --check "$@" || missing+=("the jars of scripts/fetch-jars.sh")
  if [ ${#missing[@]} -gt 0 ]; then
    printf -v list '%s, ' "${missing[@]}"
    echo "missing: ${list%, } (scripts/install-system.sh as root on Debian installs all of it)"
    exit 1
  fi
  exit 0
fi

./install-packages.sh install-system "${packages[@]}"
exec ./fetch-jars.sh "$@"
