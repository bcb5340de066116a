"""Asks both brokers every question of the tables."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from tests.authority import Authority
from tests.beside.comparison import UNLIKE, Broker, comparable, difference, own_chroot
from tests.beside.requests import IDENTITIES
from tests.beside.security import deliberate, of_brokers, of_cluster, of_groups, of_tokens, of_topics, of_transactions
from tests.beside.security.revoked import Story
from tests.beside.security.rows import Question, Row
from tests.beside.security.world import ADMIN, ASKER, World
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.processes import BrokerProcess

ROWS: tuple[Row, ...] = (
    *of_topics.ROWS,
    *of_groups.ROWS,
    *of_transactions.ROWS,
    *of_cluster.ROWS,
    *of_tokens.ROWS,
    *of_brokers.ROWS,
)
_CONFIG = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SSL",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
    "delegation.token.secret.key": "secret",
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "3600000",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "10000",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "num.recovery.threads.per.data.dir": "1",
}
_UNLIKE = (UNLIKE.keys() - {"topic_id", "error_message"}) | {"partition_size", "total_bytes"}

_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


class Side:
    """One of the two brokers, and who asks it."""

    def __init__(self, world: World, asker: Broker) -> None:
        self.world = world
        self._asker = asker

    def ask(self, question: Question, changed: Callable[[Any], Any] = lambda body: body) -> Any:
        """The answer, comparable; None when the version cannot say it.

        Args:
            changed: gives another body of the request.
        """
        if question.row.changes:
            self.world.restore()
        self.world.grant(question.rights)
        request = question.row.request(self.world, question.names, question.version)
        return (
            None
            if request is None
            else self._comparable(self._asker.answer(request._replace(body=changed(request.body))))
        )

    def tell(self, story: Story) -> list[Any]:
        """The answers to its steps."""
        response: Any = None
        answers = []
        for step in story.steps:
            request = step.request(self.world, response)
            self.world.grant(step.rights)
            response = self._asker.answer(request)
            answers.append(self._comparable(response))
        return answers

    def _comparable(self, response: Any) -> Any:
        answer = comparable(response, _UNLIKE)
        return named(answer, {**self.world.aliases, **new_ids(answer, self.world.aliases)})


def compare(ours: Side, theirs: Side, question: Question) -> str | None:
    """The first difference without a reason, "" where there is none; None where nothing was asked."""
    if deliberate.unasked(question):
        return None
    answer = ours.ask(question)
    if answer is None:
        return None
    if deliberate.unanswered(question):
        return "" if isinstance(answer, dict) else f"answer: {answer}, and Apache Kafka is not asked"
    their_answer = theirs.ask(question)
    found = every_difference(*alike(question, answer, their_answer))
    return next((where for where in found if not deliberate.reason(question, where)), "")


def every_difference(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """The places where two comparable answers differ: each has a reason, or has not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in (name for name in ours if name in theirs):  # a message where only one is an error of rights
            yield from every_difference(ours[name], theirs[name], f"{where}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from every_difference(*pair, f"{where}[{number}]")
    elif found := difference(ours, theirs, where):
        yield found


def alike(question: Question, ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Both answers without what is never alike."""
    if question.row.api_key not in deliberate.PRINTS_AN_OBJECT:
        ours, theirs = (without_other_words(one) for one in (ours, theirs))
    else:
        ours, theirs = (without_words(one) for one in (ours, theirs))
    return (once(ours), once(theirs)) if question.names_twice else (ours, theirs)


def without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_words(part) for name, part in value.items() if name != "error_message"}
    return [without_words(one) for one in value] if isinstance(value, list) else value


def without_other_words(value: Any) -> Any:
    """Messages are alike where a right is missing. The others are in each broker's words."""
    if isinstance(value, dict):
        is_denied = value.get("error_code") in _DENIED
        return {name: without_other_words(part) for name, part in value.items() if name != "error_message" or is_denied}
    return [without_other_words(one) for one in value] if isinstance(value, list) else value


def once(value: Any) -> Any:
    """What is answered twice, once: of a name that comes twice, Apache Kafka answers as many as its collections had."""
    if isinstance(value, dict):
        return {name: once(part) for name, part in value.items()}
    if isinstance(value, list):
        parts = [once(one) for one in value]
        return [part for number, part in enumerate(parts) if part not in parts[:number]]
    return value


def named(value: Any, aliases: dict[str, str]) -> Any:
    """With names in place of what is random, in the order of the names."""
    if isinstance(value, dict):
        return {field: "<one>" if is_random(field, part) else named(part, aliases) for field, part in value.items()}
    if isinstance(value, list):
        return sorted((named(one, aliases) for one in value), key=_place)
    return aliases.get(value, value) if isinstance(value, str) else value


def _place(one: Any) -> tuple[str, str]:
    """By the name, or the id that a name stands for."""
    fields = (*IDENTITIES, "topic_id")
    identity = next((one[name] for name in fields if one.get(name)), "") if isinstance(one, dict) else ""
    return str(identity), json.dumps(one, sort_keys=True)


def new_ids(answer: Any, known: dict[str, str]) -> dict[str, str]:
    """What stands for the ids of topics that have just been created."""
    if not isinstance(answer, dict):
        return {}
    found = {topic["topic_id"] for topic in answer.get("topics", ()) if isinstance(topic, dict) and "topic_id" in topic}
    return dict.fromkeys(found - known.keys() - {ZERO_UUID.hex()}, "<a new id>")


def is_random(field: str, value: Any) -> bool:
    """Of a field that each broker chooses: whether it is one that it has chosen."""
    if field == "session_id":
        return bool(value)
    if field in ("issue_timestamp", "expiry_timestamp", "max_timestamp"):
        return True
    if field in ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "producer_id"):
        return bool(value != -1)
    return field in ("token_id", "hmac") and value != ""


class Certificates:
    """Of one authority: a broker's, and those of its clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority()

    def of_a_broker(self) -> dict[str, str]:
        """Its keys."""
        return {
            "ssl.keystore.location": str(self._authority.issue("127.0.0.1").write(self._folder / "broker.pem")),
            "ssl.truststore.location": str(self._authority.write_trust(self._folder / "trust.pem")),
        }

    def of_a_client(self, name: str) -> ssl.SSLContext:
        """`name`: of its principal, such as CN=alice."""
        context = ssl.create_default_context(cadata=self._authority.trust_pem)
        common_name = name.removeprefix("CN=")
        issued = self._authority.issue(subject=common_name)
        context.load_cert_chain(issued.write(self._folder / f"{common_name}.pem"))
        return context


def listeners(port: int, tls_port: int) -> dict[str, str]:
    """A plain one for the broker itself, one over TLS for clients."""
    return {"listeners": f"PLAINTEXT://127.0.0.1:{port},CLIENT://127.0.0.1:{tls_port}"}


@contextlib.contextmanager
def sides(directory: Path, zookeeper: ZooKeeperServer, *, only: str = "") -> Iterator[dict[str, Side]]:
    """Starts "ours" and "theirs", or `only` one of them, each with all that the questions are about."""
    certificates = Certificates(directory)
    config = {**_CONFIG, **certificates.of_a_broker()}
    contexts = certificates.of_a_client(ADMIN), certificates.of_a_client(ASKER)
    found = {}
    with contextlib.ExitStack() as cleanup:
        for name in ("ours", "theirs"):
            if only not in ("", name):
                continue
            started = _STARTERS[name](directory, own_chroot(zookeeper), config)
            tls_port = free_port()
            started.properties.update(listeners(started.port, tls_port))
            cleanup.callback(started.close)
            started.start()
            admin, asker = (Broker(f"127.0.0.1:{tls_port}", tls=context) for context in contexts)
            cleanup.callback(admin.close)
            cleanup.callback(asker.close)
            world = World(admin)
            world.set_up()
            found[name] = Side(world, asker)
        yield found


def _ours(directory: Path, connect: str, config: dict[str, str]) -> BrokerProcess:
    """Without the key, nobody sends what only brokers send, whatever the right."""
    return BrokerProcess(directory / "ours", 1, connect, {**config, "ottla.broker.request.listeners": "CLIENT"})


def _theirs(directory: Path, connect: str, config: dict[str, str]) -> ApacheKafka:
    return ApacheKafka(directory / "theirs", 1, connect, [directory / "their-logs"], config)


_STARTERS: dict[str, Callable[[Path, str, dict[str, str]], Any]] = {"ours": _ours, "theirs": _theirs}


def selected(api: str = "", rows: Sequence[Row] = ROWS) -> list[Row]:
    """Those of one API, by its name in Kafka's spelling or ours; all for ""."""
    wanted = api.replace("_", "").lower()
    return [row for row in rows if wanted in ("", row.api_key.name.replace("_", "").lower())]
