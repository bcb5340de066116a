"""The files and ports of a local fleet, and the configuration of each broker.

    DIR/fleet.json            ports and formatted log directories, kept between runs
    DIR/documents.yaml        the documents of the last `ottla local up`
    DIR/coordination.sqlite   the embedded coordination store (DIR/zookeeper/ with --processes)
    DIR/broker-0/d0/          log directories, named after the disks of the document
    DIR/broker-0/server.properties, broker.log       with --processes
    DIR/fleet.log, control.sock
    DIR/security/, clients/   of a secure fleet: see `secure_files`

Ports are chosen once: CLIENT from 9092 upwards, INTERNAL and HTTP any free port; with OTTLA_PORTS all in that range.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ottla.local.port_owners import in_use
from ottla.local.ports import HOST, RANGE_VARIABLE, free_ports
from ottla.local.secure_files import SecureFiles
from ottla_broker.config.properties import format_properties
from ottla_documents.broker_pools import MAIN_POOL, BrokerPool, free_ids, missing, pools_of, surplus
from ottla_documents.kafka_cluster import KafkaCluster, default_broker_config

FIRST_CLIENT_PORT = 9092
HIGHEST_PORT = 65535
DEFAULT_RACKS = 3
_OWN_DIRECTORY = re.compile(r"broker-[0-9]+|zookeeper")
_OWN_FILE = re.compile(r"fleet\.(json|json\.tmp|log|lock)|documents\.yaml|coordination\.sqlite.*|control\.sock")
_PLAIN_KEYS = {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT"}
SESSION_TIMEOUT_MS = 6000
"""zookeeper.session.timeout.ms unless the document sets it. Leadership of a killed broker moves after this time."""
STOP_TIMEOUT_MS = 45_000
"""ottla.shutdown.timeout.ms: the limit for the shutdown of a broker."""


@dataclass(slots=True)
class BrokerPlace:
    """The state of one broker that is kept between runs. `formatted` maps the name of a disk to its directory.id."""

    id: int
    client_port: int
    internal_port: int
    http_port: int
    formatted: dict[str, str] = field(default_factory=dict)
    pool: str = MAIN_POOL
    dynamic: dict[str, str] = field(default_factory=dict)
    """What `ottla local up` has set on the running broker, and what its next start reads from its file."""


@dataclass(slots=True)
class FleetState:
    """The contents of fleet.json.

    `secure`: whether the fleet has TLS, SASL and ACLs. `has_users`: whether its users and ACLs are stored.
    """

    cluster: str
    brokers: list[BrokerPlace]
    version: int = 1
    secure: bool = False
    has_users: bool = False


class FleetStateError(Exception):
    """The data directory or its fleet.json cannot be used; the message gives the reason and the remedy."""


class Layout:
    """Paths and configurations of one fleet below its data directory.

    Args:
        data: the data directory.
        first_client_port: CLIENT ports are the next free ones from here; 0: any free port; None: 9092, or any port of
            OTTLA_PORTS.
        moves_ports: the brokers that have a CLIENT port get another one, from `first_client_port` upwards.
        secure: whether the fleet has TLS, SASL and ACLs; None: as fleet.json says.

    Raises:
        FleetStateError: the path or its fleet.json cannot be used, or its fleet is not `secure`, or is.
    """

    def __init__(
        self,
        data: Path,
        cluster: KafkaCluster,
        *,
        first_client_port: int | None = None,
        moves_ports: bool = False,
        secure: bool | None = None,
    ) -> None:
        _check_path(data)
        self.data = data
        self.cluster = cluster
        if first_client_port is None:
            first_client_port = 0 if os.environ.get(RANGE_VARIABLE) else FIRST_CLIENT_PORT
        self._first_client_port = first_client_port
        self._moves_ports = moves_ports
        self.passed_over: list[str] = []
        """The CLIENT ports that were in use when ports were assigned, a line each."""
        self._in_use: list[int] = []
        self.state = _load_state(data, cluster.name)
        if secure is not None:
            if self.state.brokers and (problem := security_differs(data, self.state.secure, secure)):
                raise FleetStateError(problem)
            self.state.secure = secure
        self.secure_files = SecureFiles(data)

    @property
    def coordination_path(self) -> Path:
        return self.data / "coordination.sqlite"

    def assign_ports(self) -> None:
        """Assigns ports to the brokers of the document that have none and writes fleet.json."""
        brokers = self.cluster.brokers
        places = {place.id: place for place in self.state.brokers}
        members = pools_of(brokers.pools, self._recorded(), has_pools=brokers.has_pools)
        for pool in brokers.pools:
            lacks = missing([pool], {number: one for number, one in members.items() if one is pool})
            ids = free_ids(pool, brokers.pools, {*places, *members}, lacks.get(pool.name, 0))
            members |= dict.fromkeys(ids, pool)
        moved = [place for place in places.values() if self._moves_ports and place.id in members]
        taken = {
            port for place in places.values() for port in (place.client_port, place.internal_port, place.http_port)
        }
        taken -= {place.client_port for place in moved}
        for place in sorted(moved, key=lambda place: place.id):
            place.client_port = self._client_port(place.id, taken)
            taken.add(place.client_port)
        self._moves_ports = False
        for broker_id in sorted(members):
            if broker_id not in places:
                client = self._client_port(broker_id, taken)
                taken.add(client)
                internal, http = free_ports(2, taken)
                taken.update((internal, http))
                places[broker_id] = BrokerPlace(broker_id, client, internal, http)
            places[broker_id].pool = members[broker_id].name
        self.state.brokers = [places[broker_id] for broker_id in sorted(places)]
        self.save()

    def _client_port(self, broker_id: int, taken: set[int]) -> int:
        first = self._first_client_port
        if not first:
            return free_ports(1, taken)[0]
        for port in range(first, HIGHEST_PORT + 1):
            if port in taken:
                continue
            if _is_free(port):
                if self._in_use:
                    self.passed_over.append(f"{in_use(self._in_use)}: broker {broker_id} listens on {port}")
                    self._in_use.clear()
                return port
            taken.add(port)
            self._in_use.append(port)
        raise FleetStateError(f"no port from {first} to {HIGHEST_PORT} is free; choose another with --port")

    def places(self) -> list[BrokerPlace]:
        """The brokers of the document, by id. Those that it has no more stay in fleet.json, and their data stays."""
        left = surplus(self._pools(), (place.id for place in self.state.brokers))
        return [place for place in self.state.brokers if place.id not in left]

    def place(self, broker_id: int) -> BrokerPlace:
        return next(place for place in self.state.brokers if place.id == broker_id)

    def _recorded(self) -> dict[int, str]:
        return {place.id: place.pool for place in self.state.brokers}

    def _pools(self) -> dict[int, BrokerPool]:
        brokers = self.cluster.brokers
        return pools_of(brokers.pools, self._recorded(), has_pools=brokers.has_pools)

    def pool_name(self, broker_id: int) -> str:
        """The pool of a broker, as fleet.json has it."""
        return self.place(broker_id).pool

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{place.client_port}" for place in self.places())

    def admin_port(self, place: BrokerPlace) -> int:
        """The port of a broker that this program speaks to, as `admin_keys` say."""
        return place.internal_port if self.state.secure else place.client_port

    @property
    def admin_bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.admin_port(place)}" for place in self.places())

    def admin_keys(self) -> dict[str, str]:
        """How this program speaks to brokers: in a secure fleet as they speak to each other."""
        return self.secure_files.internal_client_keys() if self.state.secure else {}

    def rack(self, broker_id: int) -> str:
        """Broker i is in rack i mod (number of racks)."""
        racks = self._pools()[broker_id].racks or tuple(f"rack-{number}" for number in range(DEFAULT_RACKS))
        return racks[broker_id % len(racks)]

    def broker_directory(self, broker_id: int) -> Path:
        return self.data / f"broker-{broker_id}"

    def log_directories(self, broker_id: int) -> dict[str, Path]:
        """The path of each log directory by the name of its disk, in the order of the document."""
        return {disk.name: self.broker_directory(broker_id) / disk.name for disk in self._pools()[broker_id].disks}

    def broker_config(self, place: BrokerPlace, zookeeper_connect: str) -> dict[str, str]:
        """The server.properties of one broker.

        Only directories that were never formatted have format permission: a disk that is empty again has failed.
        """
        directories = self.log_directories(place.id)
        unformatted = [str(path) for name, path in directories.items() if name not in place.formatted]
        return {
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            **default_broker_config(self.cluster),
            **self._pools()[place.id].config,
            "broker.id": str(place.id),
            "broker.rack": self.rack(place.id),
            "log.dirs": ",".join(str(path) for path in directories.values()),
            "ottla.log.dirs.format": ",".join(unformatted),
            "listeners": f"INTERNAL://{HOST}:{place.internal_port},CLIENT://{HOST}:{place.client_port}",
            **(self.secure_files.broker_keys() if self.state.secure else _PLAIN_KEYS),
            "inter.broker.listener.name": "INTERNAL",
            "ottla.http.listener": f"{HOST}:{place.http_port}",
            "ottla.shutdown.timeout.ms": str(STOP_TIMEOUT_MS),
            "zookeeper.connect": zookeeper_connect,
        }

    def record_formatted(self, broker_id: int) -> None:
        """Records the directory ids of a broker after its start, so that its directories are not formatted again."""
        place = self.place(broker_id)
        before = dict(place.formatted)
        for name, path in self.log_directories(broker_id).items():
            directory_id = _directory_id(path)
            if directory_id:
                place.formatted.setdefault(name, directory_id)
        if place.formatted != before:
            self.save()

    def save(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        target = self.data / "fleet.json"
        temporary = target.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(asdict(self.state), indent=1) + "\n")
        temporary.replace(target)


def security_differs(data: Path, is_secure: bool, wants_secure: bool) -> str:
    """What to do where a fleet is secure and is not meant to be, or the other way round; "" where that is the same.

    >>> security_differs(Path("/d"), True, False)
    '/d holds a secure fleet, as was chosen when it began: add --secure, or choose another --data'
    """
    if is_secure == wants_secure:
        return ""
    kind, remedy = ("secure fleet", "add --secure") if is_secure else ("fleet without security", "leave --secure out")
    return f"{data} holds a {kind}, as was chosen when it began: {remedy}, or choose another --data"


def delete_fleet(data: Path) -> list[Path]:
    """Deletes the files of a fleet, and the data directory if it is then empty. Returns the paths that remain.

    --data may be any folder, so other files remain. A broker directory that is a symbolic link remains too, because its
    target is outside the folder. OSError when something cannot be deleted.
    """
    SecureFiles(data).delete()
    for entry in sorted(data.iterdir()):
        if entry.is_dir():
            if _OWN_DIRECTORY.fullmatch(entry.name) and not entry.is_symlink():
                shutil.rmtree(entry)
        elif _OWN_FILE.fullmatch(entry.name):
            entry.unlink()
    remaining = sorted(data.iterdir())
    if not remaining:
        data.rmdir()
    return remaining


def write_properties(path: Path, config: dict[str, str]) -> None:
    """Writes a server.properties file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "# written by ottla local; changes are lost at the next start\n"
    path.write_text(head + format_properties(config), encoding="ascii")


def _check_path(data: Path) -> None:
    """FleetStateError for a path that cannot be part of log.dirs."""
    if "," in str(data):
        raise FleetStateError(
            f"{data}: the path has a comma, the separator of log.dirs; choose another folder with --data"
        )
    try:
        str(data).encode()
    except UnicodeEncodeError:
        raise FleetStateError(
            f"{str(data)!r}: the path is not text in UTF-8; choose another folder with --data"
        ) from None


def _load_state(data: Path, cluster: str) -> FleetState:
    path = data / "fleet.json"
    if not path.exists():
        return FleetState(cluster, [])
    try:
        raw = json.loads(path.read_text())
        places = [BrokerPlace(**place) for place in raw["brokers"]]
        is_secure, has_users = bool(raw.get("secure")), bool(raw.get("has_users"))
        state = FleetState(raw["cluster"], places, raw["version"], is_secure, has_users)
    except (ValueError, KeyError, TypeError) as error:
        raise FleetStateError(f"{path} cannot be read ({error}); restore it, or choose another --data") from error
    if state.cluster != cluster:
        raise FleetStateError(f"{data} holds the fleet {state.cluster!r}, not {cluster!r}; choose another --data")
    return state


def _directory_id(path: Path) -> str:
    try:
        lines = (path / "meta.properties").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("directory.id=")), "")


def _is_free(port: int) -> bool:
    """Whether a server that sets SO_REUSEADDR, as brokers do, can listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_base(brokers: int) -> int:
    """A port from which CLIENT ports of so many brokers are free, for a person to choose."""
    return next(
        base
        for base in range(FIRST_CLIENT_PORT + 100, HIGHEST_PORT - brokers, 100)
        if all(_is_free(port) for port in range(base, base + brokers))
    )
