#!/usr/bin/env bash
# fetch-jars.sh [--check] [SET...]: fetches jars from Maven Central into folders of ${OTTLA_CACHE:-~/.cache/ottla}, each set
# into one (flat): without a name all of them but zookeeper-image, which is the set of the image that e2e/ builds. A set is
# a folder of scripts/jars, whose pom.xml names what is fetched; nothing happens when the folder was made from the same file.
# Needs mvn and java. With --check nothing is fetched: it ends with 1 when something is missing.
set -euo pipefail
cd "$(dirname "$0")/jars"
cache=${OTTLA_CACHE:-$HOME/.cache/ottla}

require() { # command, Debian package
  if ! command -v "$1" > /dev/null; then
    echo "fetch-jars: $1 is missing: apt-get install $2 (or, as root on Debian, scripts/install-system.sh)" >&2
    exit 1
  fi
}

hash_of() { # a set
  sha256sum < "$1/pom.xml" | cut -d' ' -f1
}

is_from() { # hash of a pom, folder
  [ "$(cat "$2/.pom.sha256" 2> /dev/null)" = "$1" ]
}

fetch() { # pom folder, destination folder
  local destination=$cache/$2 wanted
  wanted=$(hash_of "$1")
  if is_from "$wanted" "$destination"; then return; fi
  require java openjdk-17-jdk-headless
  require mvn maven
  mkdir -p "$cache"
  exec 9> "$cache/.fetch-jars.lock"
  flock 9 # another one that is under way is waited for, and may have fetched it
  if is_from "$wanted" "$destination"; then return; fi
  echo "fetch-jars: fetching into $destination (once, about half a minute)"
  # Into a folder of its own first: a run that is cut off leaves no half set behind.
  local fresh attempt
  rm -rf "$cache/.$2".??????
  fresh=$(mktemp -d "$cache/.$2.XXXXXX")
  cp "$1/pom.xml" "$fresh/pom.xml"
  for attempt in 1 2 3; do # a repository has its bad moments; what is fetched already is not fetched again
    if mvn --quiet --batch-mode --update-snapshots -f "$fresh/pom.xml" \
      org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$fresh/flat" > "$fresh/log" 2>&1; then break; fi
    if [ "$attempt" = 3 ]; then
      cat "$fresh/log" >&2
      rm -rf "$fresh"
      echo "fetch-jars: Maven could not fetch what scripts/jars/$1/pom.xml names" >&2
      exit 1
    fi
    sleep 5
  done
  echo "$wanted" > "$fresh/flat/.pom.sha256"
  chmod 755 "$fresh/flat"
  rm -rf "$destination"
  mv -T "$fresh/flat" "$destination"
  rm -rf "$fresh"
}

check=
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
sets=("$@")
[ ${#sets[@]} -gt 0 ] || sets=(kafka kafka-streams zookeeper spark-connector kafka-clients-4 kafka-0.8 kafka-connect delta postgresql)
for name in "${sets[@]}"; do
  if [ ! -f "$name/pom.xml" ]; then
    echo "fetch-jars: there is no set $name; the sets are:" * >&2
    exit 2
  fi
  folder=$name-jars
  [ "$name" != kafka ] || folder=jars
  if [ -z "$check" ]; then
    fetch "$name" "$folder"
  else
    is_from "$(hash_of "$name")" "$cache/$folder" || exit 1
  fi
done
[ -n "$check" ] || echo "fetch-jars: $cache has ${sets[*]}"
