#!/usr/bin/env bash
# Fetches Apache Kafka 3.9.1, Kafka Streams, ZooKeeper 3.9, Spark's own Kafka connector, and the clients of Apache Kafka 4
# and 0.8, and Connect's connectors for files from Maven Central into folders of ${OTTLA_CACHE:-~/.cache/ottla}: jars,
# kafka-streams-jars, zookeeper-jars, spark-connector-jars, kafka-clients-4-jars, kafka-0.8-jars, kafka-connect-jars,
# delta-jars and postgresql-jars (flat). What is fetched stands in scripts/jars/*/pom.xml;
# nothing happens when the folders were made from the same files. Needs mvn and java.
set -euo pipefail
cd "$(dirname "$0")/jars"
cache=${OTTLA_CACHE:-$HOME/.cache/ottla}

require() { # command, Debian package
  if ! command -v "$1" > /dev/null; then
    echo "fetch-jars: $1 is missing: apt-get install $2 (or, as root on Debian, scripts/install-system.sh)" >&2
    exit 1
  fi
}

is_from() { # hash of a pom, folder
  [ "$(cat "$2/.pom.sha256" 2> /dev/null)" = "$1" ]
}

fetch() { # pom folder, destination folder
  local destination=$cache/$2 wanted
  wanted=$(sha256sum < "$1/pom.xml" | cut -d' ' -f1)
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

if [ "${1:-}" = zookeeper-image ]; then # only those of the image that e2e/ builds
  fetch zookeeper-image zookeeper-image-jars
  exit
fi
fetch kafka jars
fetch kafka-streams kafka-streams-jars
fetch zookeeper zookeeper-jars
fetch spark-connector spark-connector-jars
fetch kafka-clients-4 kafka-clients-4-jars
fetch kafka-0.8 kafka-0.8-jars
fetch kafka-connect kafka-connect-jars
fetch delta delta-jars
fetch postgresql postgresql-jars
echo "fetch-jars: $cache has Apache Kafka in jars, Kafka Streams in kafka-streams-jars, ZooKeeper in zookeeper-jars," \
  "Spark's connector in spark-connector-jars, Kafka's other clients in kafka-clients-4-jars and kafka-0.8-jars," \
  "Connect's connectors for files in kafka-connect-jars, Delta Lake in delta-jars, PostgreSQL in postgresql-jars"
