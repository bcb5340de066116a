"""The files of a ZooKeeper server: zoo.cfg, the first members, logging, and the scripts that start and probe it.

The ensemble can be reconfigured from its first day: standaloneEnabled=false, reconfigEnabled=true, and a dynamic
configuration that is on the data volume. Text only; `zookeeper_objects` puts it into a ConfigMap.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_documents.kafka_cluster import KafkaCluster
from ottla_operator.api import names

CLIENT_PORT = 2181
PEER_PORT = 2888
ELECTION_PORT = 3888
ADMIN_PORT = 8080
METRICS_PORT = 7000
"""The port of ZooKeeper's own provider for Prometheus, which its distribution and image contain."""
DATA = "/data"
LOG = "/datalog"
FILES = "/ottla"
MARKER = "ottla.server"
"""The file on each volume of a server that names the server. It has the same text on both volumes of a server."""
LOCK = "ottla.lock"
"""The file on each volume that a server locks (flock) for as long as its process runs. It has the name of its pod."""
TERMINATION_LOG = "/dev/termination-log"
LOGBACK = """\
<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5p %c{1} %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="console"/></root>
</configuration>
"""


def start_script(
    data: str = DATA, files: str = FILES, log: str | None = None, termination_log: str = TERMINATION_LOG
) -> str:
    """The script that a server's container runs (bash, as zkServer.sh itself).

    Static settings come from the operator at each start. The members of the ensemble are on the data volume, where
    ZooKeeper writes them after every reconfiguration. A server that starts empty, or that is no member by what is on
    its volume, begins with the members of the operator; from the other servers it learns the newest ones.

    Before anything else the script locks each volume, and the process of the server inherits the locks: a second pod on
    the same volume does not start, whoever has made it, also on another node where the file system has locks between
    nodes. Brokers lock their log directories in the same way (`.lock`).

    The script refuses a volume of another server, and a data and a log volume that do not belong together, unless the
    operator permits the server to start empty ($OTTLA_START_EMPTY, see `ensemble_volumes`). A volume with data and
    without a marker comes from a release that wrote none, and becomes this server's. With `join` the script moves what
    is left to version-2.lost, since a part of the data is not the data. With `add` it does that at each start, whatever
    the markers say: the server has no vote, and its data is that of an earlier membership. With `initialize` it keeps a
    snapshot: a person who declares the loss of a log volume has lost what the log held. The file `initialize` tells
    ZooKeeper that an empty database may vote; without it, and with db.autocreate=false, an empty server only copies
    what a quorum of others has.

    Args:
        log: the directory of the volume for transaction logs, None when they are on the data volume.
    """
    return f"""\
set -eu
data={data}
log={log or data}
conf=$data/conf
refuse() {{
  echo "$1" >&2
  echo "$1" >{termination_log} || true
  exit 1
}}
has() {{
  local file
  for file in "$1"/version-2/$2; do
    if [ -e "$file" ]; then return 0; fi
  done
  return 1
}}
set_aside() {{
  if [ -e "$1/version-2" ]; then
    rm -rf "$1/version-2.lost"
    mv "$1/version-2" "$1/version-2.lost"
  fi
}}
mark() {{
  echo "$1" >"$log/{MARKER}"
  echo "$1" >"$data/{MARKER}"
  sync
}}
lock() {{
  if ! command -v flock >/dev/null; then
    refuse "the image has no flock, without which two servers could run on one volume"
  fi
  if ! flock -n "$3"; then
    refuse "the $1 volume of server $OTTLA_SERVER_ID is in use by $(cat "$2/{LOCK}"): one server runs on a volume"
  fi
  echo "${{HOSTNAME:-another process}}" >"$2/{LOCK}"
}}
exec 9>>"$data/{LOCK}"
lock data "$data" 9
if [ "$log" != "$data" ]; then
  exec 8>>"$log/{LOCK}"
  lock log "$log" 8
fi
marker="$(cat /proc/sys/kernel/random/uuid) server $OTTLA_SERVER_ID"
of_data=$(cat "$data/{MARKER}" 2>/dev/null || true)
of_log=$(cat "$log/{MARKER}" 2>/dev/null || true)
permission=${{OTTLA_START_EMPTY:-no}}
if [ "$permission" = add ]; then
  set_aside "$log"
  set_aside "$data"
  mark "$marker"
elif [ -n "$of_data" ] && [ "$of_data" = "$of_log" ]; then
  if [ "${{of_data##* }}" != "$OTTLA_SERVER_ID" ]; then
    refuse "the volume is that of server ${{of_data##* }}, not of server $OTTLA_SERVER_ID: bind each to its own claim"
  fi
elif [ -z "$of_data" ] && has "$data" 'snapshot.*' && [ -d "$log/version-2" ]; then
  mark "$marker"
elif [ "$permission" = initialize ]; then
  if [ "$log" != "$data" ]; then set_aside "$log"; fi
  if ! has "$data" 'snapshot.*'; then set_aside "$data"; fi
  mark "$marker"
elif [ "$permission" = join ]; then
  set_aside "$log"
  set_aside "$data"
  mark "$marker"
elif [ -n "$of_data" ]; then
  refuse "the log volume of server $OTTLA_SERVER_ID is not the one that it served with: transactions are missing"
else
  refuse "the data volume of server $OTTLA_SERVER_ID is not the one that it served with: it may not start empty"
fi
if [ "$permission" = initialize ] && ! has "$data" 'snapshot.*' && ! has "$log" 'log.*'; then
  touch "$log/initialize"
else
  rm -f "$log/initialize"
fi
mkdir -p "$conf"
echo "$OTTLA_SERVER_ID" >"$data/myid"
me="^server[.]$OTTLA_SERVER_ID="
members=$(sed -n 's/^dynamicConfigFile=//p' "$conf/zoo.cfg" 2>/dev/null || true)
if [ ! -s "$members" ] || [ "$permission" = join ] || [ "$permission" = add ] || ! grep -q "$me" "$members"; then
  if ! grep -q "$me" {files}/members; then
    refuse "server $OTTLA_SERVER_ID is no member of the ensemble"
  fi
  members=$conf/zoo.cfg.dynamic
  cp {files}/members "$members"
fi
cp {files}/logback.xml "$conf/logback.xml"
cp {files}/zoo.cfg "$conf/zoo.cfg.new"
echo "dynamicConfigFile=$members" >> "$conf/zoo.cfg.new"
mv "$conf/zoo.cfg.new" "$conf/zoo.cfg"
export ZOO_LOG_DIR=/tmp ZOOPIDFILE=/tmp/zookeeper.pid
exec zkServer.sh --config "$conf" start-foreground
"""


def ready_script(port: int = CLIENT_PORT) -> str:
    """The readiness probe: it succeeds while the server serves clients.

    Not by the AdminServer, whose srvr answers 200 without a quorum too (seen with ZooKeeper 3.9.5).
    """
    return f"""\
exec 3<>/dev/tcp/127.0.0.1/{port}
printf srvr >&3
grep -q '^Mode: ' <&3
"""


def static_config(has_log_disk: bool) -> str:
    """The text of zoo.cfg, without the members of the ensemble."""
    lines = [
        "tickTime=2000",
        "initLimit=15",
        "syncLimit=5",
        f"dataDir={DATA}",
        f"dataLogDir={LOG if has_log_disk else DATA}",
        "maxClientCnxns=0",
        "standaloneEnabled=false",
        "reconfigEnabled=true",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
        "db.autocreate=false",
        "4lw.commands.whitelist=srvr,mntr,ruok",
        "admin.enableServer=true",
        f"admin.serverPort={ADMIN_PORT}",
        "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider",
        f"metricsProvider.httpPort={METRICS_PORT}",
        "quorumListenOnAllIPs=true",
    ]
    return "".join(f"{line}\n" for line in lines)


def member(cluster: KafkaCluster, server: int) -> str:
    """A server, as ZooKeeper's dynamic configuration writes it.

    >>> from ottla_documents.kafka_cluster import parse_cluster
    >>> cluster, _ = parse_cluster({"metadata": {"name": "c"}, "spec": {}})
    >>> member(cluster, 2)
    'server.2=c-zookeeper-2-0.c-zookeeper.default.svc:2888:3888:participant;0.0.0.0:2181'
    """
    host = _server_host(cluster, server)
    return f"server.{server}={host}:{PEER_PORT}:{ELECTION_PORT}:participant;0.0.0.0:{CLIENT_PORT}"


def members(cluster: KafkaCluster, servers: Iterable[int]) -> str:
    """The members that a server without a configuration of its own begins with, a line for each."""
    return "".join(f"{member(cluster, server)}\n" for server in servers)


def connect_string(cluster: KafkaCluster) -> str:
    """The value of zookeeper.connect for the brokers.

    The name of the ensemble's Service has the addresses of all servers. Clients look it up at each connection, so
    brokers need no restart when the ensemble changes its size.

    >>> from ottla_documents.kafka_cluster import parse_cluster
    >>> cluster, _ = parse_cluster({"metadata": {"name": "c"}, "spec": {"zookeeper": {"replicas": 1}}})
    >>> connect_string(cluster)
    'c-zookeeper.default.svc:2181'
    """
    if cluster.zookeeper.connect:
        return cluster.zookeeper.connect
    return f"{names.host(names.zookeeper_service(cluster.name), cluster.namespace)}:{CLIENT_PORT}"


def _server_host(cluster: KafkaCluster, server: int) -> str:
    pod = names.pod_of(names.zookeeper_name(cluster.name, server))
    return names.host(f"{pod}.{names.zookeeper_service(cluster.name)}", cluster.namespace)
