#!/usr/bin/env bash
# fetch-kerberos.sh [--check]: what the tests with Kerberos need, without root: Debian's key distribution center and the
# headers of MIT Kerberos, unpacked into ${OTTLA_CACHE:-~/.cache/ottla}/kerberos, and gssapi, built with them into .venv.
# Nothing happens when both are there. With --check nothing is fetched: it ends with 1 when something is missing.
# Needs Debian (or Ubuntu) and .venv (make setup). What is to be installed for the build is installed as root; otherwise
# one line names it.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${OTTLA_CACHE:-$HOME/.cache/ottla}
root=$cache/kerberos
packages=(
  krb5-kdc krb5-admin-server krb5-user libkrb5-dev krb5-multidev comerr-dev libgssapi-krb5-2 libkrb5-3 libkrb5support0
  libk5crypto3 libkdb5-10 libkadm5srv-mit12 libkadm5clnt-mit12 libgssrpc4 libverto1 libverto-libev1 libev4 libss2
)
is_unpacked() { [ "$(cat "$root/.packages" 2> /dev/null)" = "${packages[*]}" ]; }
is_built() { .venv/bin/python -c 'import gssapi' 2> /dev/null; }

if [ "${1:-}" = --check ]; then
  is_unpacked && is_built
  exit
fi

if ! command -v apt-get > /dev/null; then
  echo "fetch-kerberos: the key distribution center is Debian's, and apt-get is missing" >&2
  exit 1
fi
if ! is_built; then
  has() { .venv/bin/python -c "$1" 2> /dev/null; }
  missing=()
  command -v cc > /dev/null || missing+=(gcc libc6-dev)
  has 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' || missing+=(python3-dev)
  has 'import ctypes; ctypes.CDLL("libgssapi_krb5.so.2")' || missing+=(libgssapi-krb5-2)
  scripts/install-packages.sh fetch-kerberos "${missing[@]}"
fi

mkdir -p "$cache"
exec 9> "$cache/.fetch-kerberos.lock"
flock 9 # another one that is under way is waited for, and may have fetched it
if ! is_unpacked; then
  echo "fetch-kerberos: fetching into $root (once, 2 MB)"
  rm -rf "$cache/.kerberos".??????
  fresh=$(mktemp -d "$cache/.kerberos.XXXXXX")
  for attempt in 1 2 3; do # an archive has its bad moments
    if (cd "$fresh" && apt-get -qq download "${packages[@]}" > log 2>&1); then break; fi
    if [ "$(id -u)" = 0 ]; then apt-get update -qq > /dev/null || true; fi # its lists may be old, or none
    if [ "$attempt" = 3 ]; then
      cat "$fresh/log" >&2
      echo "fetch-kerberos: apt-get could not fetch them; apt-get update, as root, brings its lists up to date" >&2
      exit 1
    fi
    [ "$(id -u)" != 0 ] || apt-get -qq update || true # its lists may be old, or none
    sleep 5
  done
  for package in "$fresh"/*.deb; do
    dpkg-deb -x "$package" "$fresh/root"
  done
  echo "${packages[*]}" > "$fresh/root/.packages"
  chmod 755 "$fresh/root"
  rm -rf "$root"
  mv -T "$fresh/root" "$root"
  rm -rf "$fresh"
fi

if ! is_built; then
  echo "fetch-kerberos: building gssapi (once, about a minute)"
  libraries=$(dirname "$(echo "$root"/usr/lib/*/libgssapi_krb5.so)")
  export GSSAPI_COMPILER_ARGS="-I$root/usr/include -DHAS_GSSAPI_EXT_H" GSSAPI_LINKER_ARGS="-L$libraries -lgssapi_krb5"
  export GSSAPI_MAIN_LIB=$libraries/libgssapi_krb5.so.2
  # gssapi comes as source: it is built by the locked Cython and setuptools, not by those of its own choice.
  install() { .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes --no-deps "$@"; }
  tools=$(mktemp)
  trap 'rm -f "$tools"' EXIT
  awk '/^[^ ]/ { is_tool = /^(cython|setuptools)==/ } is_tool' requirements/kerberos.txt > "$tools"
  install -r "$tools"
  install --no-build-isolation -r requirements/kerberos.txt
fi
touch .venv/.with-kerberos # it stays, when setup-venv.sh brings .venv up to date
echo "fetch-kerberos: a key distribution center is in $root, and .venv has gssapi"
