"""The ZooKeeper ensemble: one StatefulSet per server, from the first day ready to change its size by reconfiguration.

standaloneEnabled=false and reconfigEnabled=true, a super user in a Secret, the dynamic configuration on the data
volume: 1 -> 3 -> 1 servers is then no migration. Changing the size is not served yet and is a condition; whoever serves
it takes the servers that leave out of the record of `ensemble`, or their old data would vote when they come back. With
spec.zookeeper.connect nothing of this is made. Which servers may start without data is decided in `ensemble`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    label,
    name_of,
    new,
    owned,
    short_hash,
)
from ottla_operator.model.kafka_cluster import DEFAULT_ZOOKEEPER_REPLICAS, DiskSpec, KafkaCluster
from ottla_operator.model.quantity import quantity_bytes
from ottla_operator.planning.ensemble_volumes import (
    FIRST_GENERATION,
    VolumesDecision,
    claim_name,
    decide_volumes,
    is_settled,
    stored_record,
)
from ottla_operator.planning.pods import (
    CONTAINER_SECURITY,
    TERMINATION_POLICY,
    pod_security,
    resource_requirements,
    stateful_set,
    trouble,
)
from ottla_operator.planning.progress import excused
from ottla_operator.planning.snapshot import ConcernDecision, Snapshot

CLIENT_PORT = 2181
PEER_PORT = 2888
ELECTION_PORT = 3888
ADMIN_PORT = 8080
DATA = "/data"
LOG = "/datalog"
FILES = "/ottla"
SUPER_FLAGS_KEY = "SERVER_JVMFLAGS"
GRACE_S = 60
MARKER = "ottla.server"
"""File on each volume of a server: whose volume it is. Both volumes of a server have the same text in it."""
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
    """What a server's container runs (bash, as zkServer.sh itself). `log` is the log's volume if it has one of its own.

    Static settings come from the operator at each start; who belongs to the ensemble is on the data volume, where
    ZooKeeper writes it after every reconfiguration.

    A volume with data and without a marker is one of a release that wrote none, and becomes this server's.
    A volume that is not this server's, or a data volume and a log volume that do not belong together, are refused
    unless the operator permits the server to start empty ($OTTLA_START_EMPTY, see `ensemble`). With `join` what is
    left is set aside, since a part of the data is not the data. With `initialize` a snapshot is kept: whoever declares
    the loss of a log volume has lost what the log held. The file `initialize` tells ZooKeeper that an empty database
    may vote; without it, and with db.autocreate=false, an empty server only copies what a quorum of others has.
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
marker="$(cat /proc/sys/kernel/random/uuid) server $OTTLA_SERVER_ID"
of_data=$(cat "$data/{MARKER}" 2>/dev/null || true)
of_log=$(cat "$log/{MARKER}" 2>/dev/null || true)
permission=${{OTTLA_START_EMPTY:-no}}
if [ -n "$of_data" ] && [ "$of_data" = "$of_log" ]; then
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
members=$(sed -n 's/^dynamicConfigFile=//p' "$conf/zoo.cfg" 2>/dev/null || true)
if [ ! -s "$members" ]; then
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
    """Whether the server serves clients.

    The AdminServer does not tell: its srvr answers 200 while there is no quorum (seen with 3.9.5).
    """
    return f"""\
exec 3<>/dev/tcp/127.0.0.1/{port}
printf srvr >&3
grep -q '^Mode: ' <&3
"""


@dataclass(frozen=True, slots=True)
class EnsembleDecision:
    """`stateful_sets`: as each server's should be, by server id; empty with an existing ensemble.

    `kept`: servers whose pod must not be deleted, since a volume would go with it.
    """

    decision: ConcernDecision
    stateful_sets: Mapping[int, Obj]
    needs_secret: bool = False
    kept: frozenset[int] = frozenset()


def connect_string(cluster: KafkaCluster) -> str:
    """zookeeper.connect of the brokers.

    >>> from ottla_operator.model.kafka_cluster import parse_cluster
    >>> cluster, _ = parse_cluster({"metadata": {"name": "c"}, "spec": {"zookeeper": {"replicas": 1}}})
    >>> connect_string(cluster)
    'c-zookeeper-1-0.c-zookeeper.default.svc:2181'
    """
    if cluster.zookeeper.connect:
        return cluster.zookeeper.connect
    servers = range(1, cluster.zookeeper.replicas + 1)
    return ",".join(f"{_server_host(cluster, server)}:{CLIENT_PORT}" for server in servers)


def static_config(has_log_disk: bool) -> str:
    """zoo.cfg without its members."""
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
        "quorumListenOnAllIPs=true",
    ]
    return "".join(f"{line}\n" for line in lines)


def members(cluster: KafkaCluster) -> str:
    """The first members, one line each, as the dynamic configuration writes them."""
    return "".join(
        f"server.{server}={_server_host(cluster, server)}:{PEER_PORT}:{ELECTION_PORT}:participant;"
        f"0.0.0.0:{CLIENT_PORT}\n"
        for server in range(1, cluster.zookeeper.replicas + 1)
    )


def decide_zookeeper(snapshot: Snapshot) -> EnsembleDecision:
    """Everything of the ensemble but the templates of servers that exist: those wait for their turn of a roll."""
    cluster = snapshot.cluster
    spec = cluster.zookeeper
    faults = _spec_faults(snapshot)
    if spec.connect:
        condition = faults[0] if faults else condition_true(ZOOKEEPER_READY, "ExistingEnsemble", spec.connect)
        return EnsembleDecision(ConcernDecision((condition,)), {})
    if faults and not ensemble_size(snapshot):
        return EnsembleDecision(ConcernDecision(tuple(faults[:1])), {})
    wanted = list(range(1, spec.replicas + 1))
    volumes = decide_volumes(snapshot, spec.replicas, roles_of(snapshot))
    faults = [*volumes.faults, *faults]
    desired: list[Obj] = [_service(snapshot), _budget(snapshot), _files(snapshot, volumes)]
    stateful_sets: dict[int, Obj] = {}
    for server in wanted:
        is_whole = True
        for role, disk, field in _disks(snapshot):
            exists = snapshot.get(CLAIM, claim_name(snapshot, server, role)) is not None
            if exists or server in volumes.creatable:
                desired.append(_claim(snapshot, server, role, disk, volumes))
            else:
                is_whole = False
            faults += _claim_faults(snapshot, server, role, disk, field)
        if snapshot.problems_below("spec.zookeeper.resources"):
            continue  # it is not known how a server should be; those that run stay as they are
        stateful_sets[server] = _server(snapshot, server)
        if is_whole and snapshot.get(STATEFUL_SET, names.zookeeper_name(cluster.name, server)) is None:
            desired.append(stateful_sets[server])
    condition = faults[0] if faults else _readiness(snapshot, wanted, has_served=bool(volumes.record.served))
    decision = ConcernDecision((condition,), tuple(desired))
    return EnsembleDecision(decision, stateful_sets, not snapshot.has_super_secret, volumes.kept)


def needs_reports(snapshot: Snapshot) -> bool:
    """Whether the ensemble's servers have to be asked what they do: not once each has served with the claims it has."""
    spec = snapshot.cluster.zookeeper
    size = ensemble_size(snapshot) or spec.replicas
    return not spec.connect and not is_settled(snapshot, size, roles_of(snapshot))


def super_secret(snapshot: Snapshot, password: str, digest: str) -> Obj:
    """The Secret of the ensemble's super user. `digest` is super:<base64 of the SHA-1 of super:password>."""
    cluster = snapshot.cluster
    flags = f"-Dzookeeper.DigestAuthenticationProvider.superDigest={digest}"
    secret = new(
        SECRET,
        cluster.namespace,
        names.zookeeper_secret(cluster.name),
        names.labels(cluster.name, names.ZOOKEEPER),
        type="Opaque",
        stringData={"password": password, SUPER_FLAGS_KEY: flags},
    )
    return owned(secret, snapshot.resource)


def ensemble_size(snapshot: Snapshot) -> int | None:
    """The number of servers that the ensemble was made with; None before it is made."""
    files = snapshot.get(CONFIG_MAP, _files_name(snapshot.cluster))
    if text := dig(files, "data", "members"):
        return len(str(text).splitlines())
    if (record := stored_record(snapshot)) is not None:
        return record.size
    known = snapshot.zookeeper_ids()
    return max(known) if known and max(known) > snapshot.cluster.zookeeper.replicas else None


def _spec_faults(snapshot: Snapshot) -> list[Condition]:
    """What is wrong with spec.zookeeper itself, the first thing first."""
    found: list[Condition] = []
    if wrong := snapshot.problems_below("spec.zookeeper", "metadata"):
        found.append(invalid_spec(ZOOKEEPER_READY, wrong))
    asked = dig(snapshot.resource, "spec", "zookeeper", "replicas") or DEFAULT_ZOOKEEPER_REPLICAS
    now = ensemble_size(snapshot)
    if now is not None and now != asked:
        message = f"spec.zookeeper.replicas: changing {now} to {asked} servers is not supported; nothing was changed"
        found.append(condition_false(ZOOKEEPER_READY, "EnsembleResizeNotSupported", message))
    spec = snapshot.cluster.zookeeper
    if not spec.connect and has_log_disk(snapshot) != (spec.log_disk is not None):
        act = "adding" if spec.log_disk is not None else "removing"
        message = f"spec.zookeeper.logDisk: {act} it is not supported; the ensemble keeps its log where it is"
        found.append(condition_false(ZOOKEEPER_READY, "LogDiskChanged", message))
    if not spec.connect and not spec.disk.size:
        found.append(condition_false(ZOOKEEPER_READY, "NoSize", "spec.zookeeper.disk.size: is required on Kubernetes"))
    return found


def _server_host(cluster: KafkaCluster, server: int) -> str:
    pod = names.pod_of(names.zookeeper_name(cluster.name, server))
    return names.host(f"{pod}.{names.zookeeper_service(cluster.name)}", cluster.namespace)


def _files_name(cluster: KafkaCluster) -> str:
    return names.zookeeper_service(cluster.name)


def _labels(cluster: KafkaCluster, server: int | None = None, **extra: str) -> dict[str, str]:
    numbered = {} if server is None else {"server_id": str(server)}
    return names.labels(cluster.name, names.ZOOKEEPER, **numbered, **extra)


def _selector(cluster: KafkaCluster) -> dict[str, str]:
    return {names.CLUSTER: cluster.name, "app.kubernetes.io/component": names.ZOOKEEPER}


def _service(snapshot: Snapshot) -> Obj:
    cluster = snapshot.cluster
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _selector(cluster),
        "ports": [
            {"name": "client", "port": CLIENT_PORT},
            {"name": "peer", "port": PEER_PORT},
            {"name": "election", "port": ELECTION_PORT},
        ],
    }
    service = new(SERVICE, cluster.namespace, names.zookeeper_service(cluster.name), _labels(cluster), spec=spec)
    return owned(service, snapshot.resource)


def _budget(snapshot: Snapshot) -> Obj:
    """An absolute number: maxUnavailable does not count pods that are missing."""
    cluster = snapshot.cluster
    spec = {"minAvailable": cluster.zookeeper.replicas - 1, "selector": {"matchLabels": _selector(cluster)}}
    name = names.zookeeper_service(cluster.name)
    return owned(new(DISRUPTION_BUDGET, cluster.namespace, name, _labels(cluster), spec=spec), snapshot.resource)


def _scripts(snapshot: Snapshot) -> dict[str, str]:
    """What a server runs with: a change of it is a roll."""
    return {
        "zoo.cfg": static_config(has_log_disk(snapshot)),
        "logback.xml": LOGBACK,
        "start.sh": start_script(log=LOG if has_log_disk(snapshot) else None),
        "ready.sh": ready_script(),
    }


def _files(snapshot: Snapshot, volumes: VolumesDecision) -> Obj:
    """With the record of who holds data, and the permissions, which a container reads when it starts: one write."""
    cluster = snapshot.cluster
    data = {"members": members(cluster), **_scripts(snapshot)}
    data |= {_permission_key(server): permission for server, permission in volumes.permissions.items()}
    files = new(CONFIG_MAP, cluster.namespace, _files_name(cluster), _labels(cluster), data=data)
    files["metadata"]["annotations"] = {names.ENSEMBLE: volumes.record.to_text()}
    return owned(files, snapshot.resource)


def _permission_key(server: int) -> str:
    return f"start-empty-{server}"


def _disks(snapshot: Snapshot) -> list[tuple[str, DiskSpec, str]]:
    """(role, disk, field of the spec)."""
    spec = snapshot.cluster.zookeeper
    found = [("data", spec.disk, "spec.zookeeper.disk")]
    if has_log_disk(snapshot):
        found.append(("log", spec.log_disk or spec.disk, "spec.zookeeper.logDisk"))
    return found


def roles_of(snapshot: Snapshot) -> list[str]:
    """The volumes of a server."""
    return [role for role, _, _ in _disks(snapshot)]


def has_log_disk(snapshot: Snapshot) -> bool:
    """Whether the servers keep their transaction log on a volume of its own: as the ensemble was made, else the spec.

    A server whose log is suddenly elsewhere does not find its last transactions. Its StatefulSet tells best; then the
    files, which are written before the first claim; then claims that a deleted cluster has left.
    """
    templates = [dig(obj, "spec", "template", "spec", "volumes") or [] for obj in servers_of(snapshot).values()]
    if templates:
        return any(volume.get("name") == "log" for volumes in templates for volume in volumes)
    if text := dig(snapshot.get(CONFIG_MAP, _files_name(snapshot.cluster)), "data", "zoo.cfg"):
        return f"dataLogDir={LOG}\n" in str(text)
    if (record := stored_record(snapshot)) is not None and record.served:
        return any(len(uids) > 1 for uids in record.served.values())
    claims = {label(claim, names.DISK) for claim in snapshot.all(CLAIM) if label(claim, names.SERVER_ID) is not None}
    return "log" in claims if claims else snapshot.cluster.zookeeper.log_disk is not None


def _claim(snapshot: Snapshot, server: int, role: str, disk: DiskSpec, volumes: VolumesDecision) -> Obj:
    cluster = snapshot.cluster
    name = claim_name(snapshot, server, role)
    live = snapshot.get(CLAIM, name)
    size = disk.size or cluster.zookeeper.disk.size
    if live is not None:
        size = str(dig(live, "spec", "resources", "requests", "storage") or size)
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    storage_class = dig(live, "spec", "storageClassName") or disk.storage_class_name
    if storage_class:
        spec["storageClassName"] = storage_class
    labels = _labels(cluster, server, disk=role, generation=str(FIRST_GENERATION))
    claim = new(CLAIM, cluster.namespace, name, labels, spec=spec)
    claim["metadata"]["annotations"] = {names.ENSEMBLE: volumes.record.to_text()}
    return claim


def _claim_faults(snapshot: Snapshot, server: int, role: str, disk: DiskSpec, field: str) -> list[Condition]:
    name = claim_name(snapshot, server, role)
    live = snapshot.get(CLAIM, name)
    if live is None or not disk.size:
        return []
    requested = str(dig(live, "spec", "resources", "requests", "storage") or "0")
    if quantity_bytes(disk.size) != quantity_bytes(requested):
        message = f"{field}.size: changing {requested} of claim {name} to {disk.size} is not supported"
        return [condition_false(ZOOKEEPER_READY, "DiskResizeNotSupported", message)]
    return []


def _server(snapshot: Snapshot, server: int) -> Obj:
    """The StatefulSet of one server."""
    cluster = snapshot.cluster
    name = names.zookeeper_name(cluster.name, server)
    labels = _labels(cluster, server)
    mounts = [{"name": "files", "mountPath": FILES, "readOnly": True}, {"name": "tmp", "mountPath": "/tmp"}]
    volumes: list[Obj] = [
        {"name": "files", "configMap": {"name": _files_name(cluster)}},
        {"name": "tmp", "emptyDir": {}},
    ]
    for role, _, _ in _disks(snapshot):
        mounts.append({"name": role, "mountPath": DATA if role == "data" else LOG})
        volumes.append({"name": role, "persistentVolumeClaim": {"claimName": claim_name(snapshot, server, role)}})
    container: Obj = {
        "name": names.ZOOKEEPER,
        "image": snapshot.images.zookeeper,
        "command": ["bash", f"{FILES}/start.sh"],
        "env": [
            {"name": "OTTLA_SERVER_ID", "value": str(server)},
            {
                "name": "OTTLA_START_EMPTY",
                "valueFrom": {"configMapKeyRef": {"name": _files_name(cluster), "key": _permission_key(server)}},
            },
            {
                "name": SUPER_FLAGS_KEY,
                "valueFrom": {"secretKeyRef": {"name": names.zookeeper_secret(cluster.name), "key": SUPER_FLAGS_KEY}},
            },
        ],
        "ports": [
            {"name": "client", "containerPort": CLIENT_PORT},
            {"name": "peer", "containerPort": PEER_PORT},
            {"name": "election", "containerPort": ELECTION_PORT},
            {"name": "admin", "containerPort": ADMIN_PORT},
        ],
        "volumeMounts": mounts,
        "startupProbe": _alive(period=2, failures=60),
        "livenessProbe": _alive(period=10, failures=6),
        "readinessProbe": {
            "exec": {"command": ["bash", f"{FILES}/ready.sh"]},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        },
        "resources": resource_requirements(cluster.zookeeper.resources),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": TERMINATION_POLICY,
    }
    if snapshot.images.pull_policy:
        container["imagePullPolicy"] = snapshot.images.pull_policy
    selector = _selector(cluster)
    pod_spec: Obj = {
        "containers": [container],
        "volumes": volumes,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
            for key in dict.fromkeys((cluster.brokers.rack_key, "kubernetes.io/hostname"))
        ],
    }
    annotations = {names.CONFIG: short_hash(_scripts(snapshot))}
    built = stateful_set(cluster.namespace, name, labels, names.zookeeper_service(cluster.name), pod_spec, annotations)
    return owned(built, snapshot.resource)


def _alive(*, period: int, failures: int) -> Obj:
    """The process answers, with or without a quorum."""
    return {
        "httpGet": {"path": "/commands/ruok", "port": ADMIN_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _readiness(snapshot: Snapshot, wanted: list[int], *, has_served: bool) -> Condition:
    """A server in its turn of a roll is down by intent; an ensemble without a quorum never is."""
    waiting: list[str] = []
    down: list[str] = []
    pods = {
        server: snapshot.pod(names.pod_of(names.zookeeper_name(snapshot.cluster.name, server))) for server in wanted
    }
    rolling = excused(snapshot, names.ZOOKEEPER, pods)
    for server, pod in pods.items():
        if pod is None or not has_condition(pod, "Ready"):
            why = snapshot.why_no_pod(names.zookeeper_name(snapshot.cluster.name, server))
            down.append(f"{server} has no pod{why}" if pod is None else f"{server} {trouble(pod)}")
            if server not in rolling:
                waiting.append(down[-1])
    if has_served and len(wanted) - len(down) <= len(wanted) // 2:
        return condition_false(ZOOKEEPER_READY, "NoQuorum", f"nothing is served; servers: {', '.join(down)}")
    if waiting:
        return condition_false(ZOOKEEPER_READY, "WaitingForServers", f"servers not ready: {', '.join(waiting)}")
    return condition_true(ZOOKEEPER_READY)


def servers_of(snapshot: Snapshot) -> dict[int, Obj]:
    """The StatefulSets of the ensemble that exist, by server id."""
    found: dict[int, Obj] = {}
    for obj in snapshot.all(STATEFUL_SET):
        number = label(obj, names.SERVER_ID)
        if number is None or not number.isdecimal():
            continue
        if name_of(obj) == names.zookeeper_name(snapshot.cluster.name, int(number)):
            found[int(number)] = obj
    return found
