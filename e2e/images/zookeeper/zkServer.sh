#!/usr/bin/env bash
# zkServer.sh --config FOLDER start-foreground: runs the server of FOLDER/zoo.cfg with its logback.xml.
# SERVER_JVMFLAGS are more flags of Java, as with ZooKeeper's own script.
set -euo pipefail
if [ "${1:-}" != --config ] || [ "${3:-}" != start-foreground ]; then
  echo "usage: zkServer.sh --config FOLDER start-foreground" >&2
  exit 2
fi
# shellcheck disable=SC2086 # several flags
exec java -Xmx192m ${SERVER_JVMFLAGS:-} -cp "$2:/opt/zookeeper/lib/*" \
  org.apache.zookeeper.server.quorum.QuorumPeerMain "$2/zoo.cfg"
