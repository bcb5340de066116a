"""ACLs of three brokers: administrators add and remove them at any broker, and clients of each are decided about.

Not whole brokers: `StoredAcls`, its authorizer, and what connections remember, on sessions with the coordination store.
Sessions expire and are interrupted, the store is slow, change nodes vanish before they are read, brokers crash and load
again while ACLs change.

* What an administrator was told to be added or removed is so at once at that broker, and in the end at all.
* Two administrators change the same resources at once: no ACL of either is lost.
* Soon after the faults each broker decides as the znodes say, on connections that were asked before too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla_broker.authorization.access import Access
from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.coordination import security_znodes as znodes
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.security.principals import Principal
from ottla_broker.server.store.stored_acls import StoredAcls
from simulation.checker import Checker, Violation
from simulation.clock import SimulatedClock
from simulation.coordination import SimulatedCoordination, SimulatedStore
from simulation.world import Machine, World

ROUNDS = 6
CHANGES = 12
"""Of each administrator in a round."""
SETTLED_S = 8.0
"""After the faults of a round: a session has come back, and each change is read within a second."""
LOADED_WITHIN_S = 60
NAMES = ("a", "ab", "abc", "b", "*")
PATTERNS = tuple(
    ResourcePattern(ResourceType.TOPIC, name, pattern_type)
    for name in NAMES
    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
)
ADMINISTRATORS = ("alice", "bob")
"""Each changes the ACLs of the user of its name alone."""
ADDRESS = "10.0.0.7"


class AclBroker:
    """One broker through its lives, and a connection of each user to it."""

    def __init__(self, world: World, store: SimulatedStore, machine: Machine) -> None:
        self._world = world
        self._store = store
        self._machine = machine
        self.acls: StoredAcls | None = None
        """None before it has loaded."""
        self.has_session = False
        self.coordination: SimulatedCoordination
        self.connections: dict[str, Access] = {}

    def start(self) -> None:
        process = self._machine.start_process()
        self.acls = None
        self.has_session = False
        self.coordination = coordination = SimulatedCoordination(process, self._store, session_timeout_s=3)
        clock = SimulatedClock(process)
        authorizer = AclAuthorizer()
        acls = StoredAcls(authorizer, coordination, clock, logging.getLogger("simulation"))

        async def load() -> None:
            await coordination.start()
            self.has_session = True
            while True:
                try:
                    await acls.start()
                    break
                except CoordinationError:
                    await clock.sleep(0.1)  # a broker would start again
            self.acls = acls
            self.connections = {user: Access(authorizer, Principal("User", user), ADDRESS) for user in ADMINISTRATORS}

        process.spawn(load(), name="load")

    def crash(self) -> None:
        self._machine.crash_process()
        self.acls = None

    def allowed(self, user: str) -> set[str]:
        """The topics that a user may read, as its connection is told."""
        access = self.connections[user]
        return {
            name for name in NAMES if access.allows("Fetch", AclOperation.READ, ResourceType.TOPIC, name, logs=False)
        }


class AclAdministrator:
    """Adds and removes what the user of its name may read."""

    def __init__(self, world: World, user: str, brokers: list[AclBroker]) -> None:
        self._world = world
        self._brokers = brokers
        self._draw = world.stream(f"administrator/{user}")
        self.user = user
        self.granted: set[ResourcePattern] = set()
        """What it was told, or found out, to be stored."""
        self._entry = AccessControlEntry(f"User:{user}", "*", AclOperation.READ, PermissionType.ALLOW)

    async def work(self) -> None:
        for _ in range(CHANGES):
            await _sleep(self._world, 0.3 * self._draw.random())
            pattern = self._draw.choice(PATTERNS)
            adds = self._draw.random() < 0.6
            while not await self._change(self._draw.choice(self._brokers), pattern, adds=adds):
                await _sleep(self._world, 0.2)

    async def _change(self, broker: AclBroker, pattern: ResourcePattern, *, adds: bool) -> bool:
        """Whether it was told that it is done; else it asks again."""
        acls, coordination = broker.acls, broker.coordination
        if acls is None:
            return False
        task = coordination._process.spawn(self._ask(acls, pattern, adds=adds), name="change")
        while not task.done():
            await _sleep(self._world, 0.001)
            if broker.acls is not acls:
                return False  # it has crashed
        if not task.result():
            return False
        if adds:
            self.granted.add(pattern)
        else:
            self.granted.discard(pattern)
        return True

    async def _ask(self, acls: StoredAcls, pattern: ResourcePattern, *, adds: bool) -> bool:
        try:
            if adds:
                await acls.add(pattern, frozenset({self._entry}))
            else:
                await acls.remove(pattern, lambda entry: entry == self._entry)
        except CoordinationError:
            return False
        if (self._entry in acls.known.get(pattern, ())) is not adds:
            raise Violation(f"{self.user} was told that a change of {pattern} is done, and it is not in force")
        return True


async def run(world: World) -> Checker:
    store = SimulatedStore(world)
    draw = world.stream("acls")
    brokers = [AclBroker(world, store, world.machine(f"broker-{n}", f"10.0.0.{n}")) for n in range(3)]
    administrators = [AclAdministrator(world, user, brokers) for user in ADMINISTRATORS]
    for broker in brokers:
        broker.start()
    for _ in range(ROUNDS):
        work = [world.spawn(one.work(), name=one.user) for one in administrators]
        while not all(one.done() for one in work):
            await _sleep(world, 0.4 * draw.random())
            _fault(world, store, draw.choice(brokers), draw.random())
            for broker in brokers:
                if broker.acls is not None:
                    for user in ADMINISTRATORS:
                        broker.allowed(user)
        for one in work:
            one.result()
        store.slow_s = 0.0
        for _ in range(LOADED_WITHIN_S):
            if all(broker.acls is not None for broker in brokers):
                break
            await _sleep(world, 1)
        await _sleep(world, SETTLED_S)
        _compare(store, brokers, administrators)
    return Checker()


def _fault(world: World, store: SimulatedStore, broker: AclBroker, number: float) -> None:
    """One of them, or none, by a number below 1."""
    world.faults += 1
    if number < 0.20:
        if broker.has_session and number < 0.10:
            store.expire(broker.coordination.session_id)
        elif broker.has_session:
            store.disconnect(broker.coordination, 20 * number)
    elif number < 0.50:
        for path in _changes(store):
            store.remove(path)
    elif number < 0.75:
        if broker.acls is not None:
            broker.crash()
            broker.start()
    elif number < 0.85:
        store.slow_s = 0.2 if not store.slow_s else 0.0
    else:
        world.faults -= 1


def _changes(store: SimulatedStore) -> Iterator[str]:
    for root in (znodes.ACL_CHANGES, znodes.EXTENDED_ACL_CHANGES):
        for name in store.names(root):
            yield f"{root}/{name}"


def _compare(store: SimulatedStore, brokers: list[AclBroker], administrators: list[AclAdministrator]) -> None:
    """Violation for a broker that decides otherwise than the znodes say, or an ACL that is lost."""
    stored = {}
    for pattern in PATTERNS:
        path = znodes.acl_path(pattern)
        data = store.data(path)
        if data is not None:
            stored[pattern] = znodes.decode_acls(path, data)
    for one in administrators:
        found = {pattern for pattern, entries in stored.items() if one._entry in entries}
        if found != one.granted:
            raise Violation(f"of the ACLs of {one.user}, {found ^ one.granted} is stored otherwise than it was told")
    truth = AclAuthorizer()
    for pattern, entries in stored.items():
        truth.put(pattern, entries)
    for number, broker in enumerate(brokers):
        if broker.acls is None:
            raise Violation(f"broker {number} has not loaded")
        if broker.acls.known != stored:
            raise Violation(f"broker {number} knows {broker.acls.known}, and the store has {stored}")
        for user in ADMINISTRATORS:
            access = Access(truth, Principal("User", user), ADDRESS)
            expected = {
                name
                for name in NAMES
                if access.allows("Fetch", AclOperation.READ, ResourceType.TOPIC, name, logs=False)
            }
            if broker.allowed(user) != expected:
                raise Violation(f"broker {number} lets {user} read {broker.allowed(user)}, by the ACLs {expected}")


async def _sleep(world: World, seconds: float) -> None:
    """Virtual time, for what belongs to no process."""
    future = world.loop.create_future()
    world.call_later(seconds, future.set_result, None)
    await future
