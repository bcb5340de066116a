"""What `ottla local` prints about a fleet."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from ottla.local.client_files import MECHANISM
from ottla.local.fleet_state import disks_of, fleet_state
from ottla.local.known_fleets import KnownFleet
from ottla.local.secure_files import ADMIN, APP, CLIENTS, PREFIX

console = Console()
_LINE_EVERY_S = 10.0


def say(line: str, *, style: str = "") -> None:
    """A line of its own, whatever the width of the terminal."""
    console.print(line, style=style, soft_wrap=True, markup=False, highlight=False)


class StartProgress:
    """What a start waits for: beside a spinner on a terminal, elsewhere a line every ten seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._said = time.monotonic()
        self._status: Status | None = console.status(what) if console.is_terminal else None

    def __enter__(self) -> StartProgress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def waits_for(self, what: str) -> None:
        """Shows what is waited for, and for how long by now."""
        now = time.monotonic()
        line = f"{self._what}: {what} ({now - self._began:.0f} s)"
        if self._status is not None:
            self._status.update(line if now - self._began >= 1 else self._what)
        elif now - self._said >= _LINE_EVERY_S:
            self._said = now
            say(line)


def print_started(status: Mapping[str, Any], waited_s: float) -> None:
    """The first lines after a start: how long it took, and what is not as one expects."""
    state = fleet_state(status)
    megabytes = status["rss_bytes"] / 1e6
    count = len(status["brokers"])
    brokers = "1 broker" if count == 1 else f"{count} brokers"
    say(f"{status['cluster']}: {brokers} ready in {waited_s:.1f} s, {megabytes:.0f} MB")
    if state != "ready":
        say(f"{status['cluster']}: {state}", style="red")
    for line in status["passed_over"]:
        say(line)


def print_applied(answer: Mapping[str, Any], restart_command: str) -> None:
    """What other documents have changed in a running fleet."""
    say(f"{answer['cluster']}: already running, the documents are applied; {fleet_state(answer)}")
    for one in answer["config"]:
        if one["error"]:
            say(f"config     {one['name']}: {one['error']}; a restart takes it from the document", style="red")
        else:
            say(f"config     {one['name']}: {one['done']}")
    for line in answer["restart"]:
        say(f"restart    {line}")
    for name in answer["undeclared"]:
        say(f"topic      {name}: not declared any more; it stays, with its records")
    if answer["restart"]:
        say(f"what says restart waits for one: {restart_command}")


def print_security(clients: str) -> None:
    """How clients reach a secure fleet. `clients`: the directory of their files, as it is written here."""
    say(f"security   SASL_SSL with {MECHANISM}, and ACLs; settings of clients: {clients}")


def print_first_commands(clients: str, bootstrap: str) -> None:
    """What a first client of a secure fleet may do, with a command each that writes and reads. See `print_security`."""
    say(f"users      {ADMIN} may do everything; {APP} may use topics and groups that begin with {PREFIX}")
    say(f"write      echo hello | kcat -F {shlex.quote(f'{clients}/{APP}.librdkafka.conf')} -P -t {PREFIX}first")
    say(
        f"read       kafka-console-consumer.sh --bootstrap-server {bootstrap} "
        f"--consumer.config {shlex.quote(f'{clients}/{APP}.properties')} "
        f"--topic {PREFIX}first --group {PREFIX}first --from-beginning --max-messages 1"
    )


def print_topics(topics: Sequence[Mapping[str, Any]]) -> None:
    for topic in topics:
        if not topic["error"]:
            say(f"topic      {topic['name']}: {topic['done']}")
        else:
            unlike = "not as declared" if topic["exists"] else "not created"
            say(f"topic      {topic['name']}: {unlike}: {topic['error']}", style="red")


def failed_topics(topics: Sequence[Mapping[str, Any]]) -> str:
    """The last line about topics that could not be created or changed; "" when all could.

    >>> failed_topics([{"name": "t", "error": "no", "exists": False}, {"name": "u", "error": ""}])
    '1 of 2 topics was not created: t'
    """
    failed = [topic for topic in topics if topic["error"]]
    if not failed:
        return ""
    is_one = len(failed) == 1
    if any(topic["exists"] for topic in failed):
        what = "is not as declared" if is_one else "are not as declared"
    else:
        what = "was not created" if is_one else "were not created"
    return f"{len(failed)} of {len(topics)} topics {what}: {', '.join(topic['name'] for topic in failed)}"


def print_fleet(status: Mapping[str, Any], directory: Path) -> None:
    """One fleet and its brokers."""
    say(f"{status['cluster']}: {fleet_state(status)}")
    say(f"bootstrap  {status['bootstrap']}")
    if status.get("secure"):
        print_security(str(directory / CLIENTS))
    say(f"data       {directory}")
    table = _table("broker", "address", "http", "rack", "pid", "disks")
    for broker in status["brokers"]:
        pid = str(broker["pid"]) if broker["pid"] else "[red]down[/red]"
        disks = disks_of(broker)
        table.add_row(str(broker["id"]), broker["address"], broker["http"], broker["rack"], pid, disks)
    console.print(table, soft_wrap=True, highlight=False)


def print_fleets(fleets: Sequence[KnownFleet], shown: Mapping[Path, str]) -> None:
    """All fleets of this folder, a row each. `shown`: how each data directory is written here."""
    table = _table("fleet", "state", "bootstrap", "data")
    for fleet in fleets:
        state = fleet.problem or ("stopped" if fleet.found is None else fleet_state(fleet.found))
        bootstrap = "" if fleet.found is None else fleet.found["bootstrap"]
        table.add_row(fleet.name, state, bootstrap, shown[fleet.data])
    console.print(table, soft_wrap=True, highlight=False, markup=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ignore")
    return table
