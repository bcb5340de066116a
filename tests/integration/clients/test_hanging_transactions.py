"""Transactions that nobody ends (KIP-664): Kafka's own tool finds them, and an administrator ends them."""

from __future__ import annotations

import confluent_kafka
import pytest

from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.topics import FOREVER, create
from tests.integration.clients.transactions import Transactions

pytestmark = pytest.mark.java
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def test_the_tool_finds_a_hanging_transaction_and_ends_it(
    bootstrap: str, internal: str, name: str, machine: JavaMachine
) -> None:
    create(bootstrap, name, retention_ms=FOREVER)
    living = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-living"})
    living.init_transactions(LIMIT_S)
    living.begin_transaction()
    living.produce(name, b"of a transaction that its coordinator knows", partition=0, timestamp=1_700_000_000_000)
    assert living.flush(LIMIT_S) == 0
    hanging = Transactions(internal, name)
    start = hanging.produce(777_777, b"of one that it does not know")

    def tool(*arguments: str, server: str = bootstrap) -> list[list[str]]:
        """The rows of its table."""
        done = machine.tool(TRANSACTIONS, "--bootstrap-server", server, *arguments)
        assert done.status == 0, f"{done.out}{done.err}"
        return [line.split() for line in done.out.splitlines()[1:]]

    # Both have been open for long, by the timestamps of their records.
    (row,) = tool("find-hanging", "--topic", name)
    assert row[:6] == [name, "0", "777777", "0", "-1", str(start)]
    assert [found[:6] for found in tool("find-hanging", "--broker-id", "0") if found[0] == name] == [row[:6]]

    assert [row[0] for row in tool("list") if row[0].startswith(name)] == [f"{name}-living"]
    (described,) = tool("describe", "--transactional-id", f"{name}-living")
    assert described[4] == "Ongoing" and described[-1] == f"{name}-0"

    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    living.commit_transaction(LIMIT_S)
    partition = confluent_kafka.TopicPartition(name, 0)

    def stable_end() -> int:
        return consumer.get_watermark_offsets(partition, LIMIT_S)[1]

    await_that(lambda: stable_end() == start, "the marker is written, and the hanging transaction holds the end back")
    found = ("abort", "--topic", name, "--partition", "0", "--start-offset", str(start))
    refused = machine.tool(TRANSACTIONS, "--bootstrap-server", bootstrap, *found)
    assert refused.status != 0 and "cluster authorization error" in refused.out + refused.err
    assert stable_end() == start, "only the brokers' listener takes markers"
    tool(*found, server=internal)
    assert stable_end() > start
    assert tool("find-hanging", "--topic", name) == []
    consumer.close()


def test_a_marker_of_an_administrator_names_the_coordinator_epoch(
    bootstrap: str, internal: str, name: str, machine: JavaMachine
) -> None:
    create(bootstrap, name)
    transactions = Transactions(internal, name)
    start = transactions.produce(7, b"open")
    producer = ("--producer-id", "7", "--producer-epoch", "0")

    def abort(*arguments: str) -> str:
        given = ("--bootstrap-server", internal, "abort", "--topic", name, "--partition", "0", *arguments)
        done = machine.tool(TRANSACTIONS, *given)
        return "" if done.status == 0 else done.out + done.err

    assert abort(*producer, "--coordinator-epoch", "5") == ""
    assert transactions.produce(7, b"open again") > start
    assert "has been fenced by the active coordinator" in abort(*producer, "--coordinator-epoch", "4")
    unknown = ("--producer-id", "999", "--producer-epoch", "0", "--coordinator-epoch", "0")
    assert abort(*unknown) == "", "as with Apache Kafka: a marker of any producer is appended"
    assert abort(*producer, "--coordinator-epoch", "5") == ""
    assert abort(*producer, "--coordinator-epoch", "5") == "", "again: it ends nothing"


def test_no_client_of_the_tool_remains_for_the_next_fleet(bootstrap: str, machine: JavaMachine) -> None:
    """It never closes its own, which would connect to the brokers of another test once they have the same port."""
    assert machine.tool(TRANSACTIONS, "--bootstrap-server", bootstrap, "list").status == 0
    assert machine.ask("clients")["threads"]
    machine.end_clients()
    assert machine.ask("clients")["threads"] == []
