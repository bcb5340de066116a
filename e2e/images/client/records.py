"""Sends numbered records and reads them again, with librdkafka (confluent-kafka) or kafka-python. Runs in a pod.

records.py send TOPIC COUNT|- FILE   acks=all; the numbers that were acknowledged go to FILE; "-" goes on until SIGTERM
records.py follow TOPIC MEMBERS FILE so many members of a group read until SIGTERM; partition, offset, number go to FILE
records.py check TOPIC FILE          reads everything and prints {"acknowledged", "read", "lost", "repeated"}
records.py placement TOPIC           prints {partition: [the brokers of its replicas]}
records.py leaders TOPIC             prints {partition: the broker that leads it, -1 for none}
records.py controller                prints the broker that is the controller
records.py knock HOST:PORT...        opens connections until SIGTERM; prints {HOST:PORT: {what became of one: how many}}
records.py python TOPIC COUNT        kafka-python sends COUNT records and reads them; prints how many
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import time
from collections import Counter

BOOTSTRAP = os.environ["BOOTSTRAP"]
PER_SECOND = 400
KNOCK_EVERY_S = 1.0
"""A kernel refuses connections to a Service without pods six times in a row, then once a second."""
TIMEOUT_MS = 240_000


def send(topic: str, count: int | None, path: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": TIMEOUT_MS,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 5000,
        }
    )
    acknowledged = 0
    refused: list[str] = []
    stopping = until_sigterm()

    def delivered(error, message) -> None:  # type: ignore[no-untyped-def]
        nonlocal acknowledged
        if error is None:
            print(int(message.key()), file=file)
            acknowledged += 1
        else:
            refused.append(str(error))

    with open(path, "w", buffering=1) as file:  # a number is there once it is acknowledged: the tests count them
        began = time.monotonic()
        for number in itertools.count() if count is None else range(count):
            if stopping:
                break
            while True:
                try:
                    producer.produce(topic, key=str(number), value=b"x" * 200, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            if count is None:
                time.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
                if number % PER_SECOND == 0:
                    print(json.dumps({"sent": number, "acknowledged": acknowledged}), flush=True)
        left = producer.flush(TIMEOUT_MS / 1000)
    print(json.dumps({"acknowledged": acknowledged, "refused": refused[:5], "unknown": left}), flush=True)


def follow(topic: str, members: int, path: str) -> None:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": BOOTSTRAP, "group.id": f"follow-{topic}", "auto.offset.reset": "earliest"}
    consumers = [Consumer(settings) for _ in range(members)]
    read = rebalances = 0
    errors: list[str] = []
    stopping = until_sigterm()

    def rebalanced(consumer, partitions) -> None:  # type: ignore[no-untyped-def]
        nonlocal rebalances
        rebalances += 1

    def progress() -> dict[str, object]:
        shares = [len(consumer.assignment()) for consumer in consumers]
        return {"read": read, "shares": shares, "rebalances": rebalances, "errors": errors[:5]}

    for consumer in consumers:
        consumer.subscribe([topic], on_assign=rebalanced, on_revoke=rebalanced)
    with open(path, "w", buffering=1) as file:
        while not stopping:
            for consumer in consumers:
                for message in consumer.consume(500, 0.1):
                    if message.error() is not None:
                        errors.append(str(message.error()))
                        continue
                    file.write(f"{message.partition()} {message.offset()} {int(message.key() or b'-1')}\n")
                    read += 1
            print(json.dumps(progress()), flush=True)
    last, committed = progress(), 0
    for consumer in consumers:
        consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
        committed += sum(partition.offset for partition in consumer.committed(consumer.assignment(), 60))
        consumer.close()
    print(json.dumps({**last, "committed": committed}), flush=True)


def until_sigterm() -> list[int]:
    """Holds something once SIGTERM has come."""
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    return came


def check(topic: str, path: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    with open(path) as file:
        wanted = {int(line) for line in file.read().split()}
    settings = {"bootstrap.servers": BOOTSTRAP, "group.id": "check", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    partitions = list(described(consumer, topic))
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: Counter[int] = Counter()
    ends: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while len(ends) < len(partitions) and time.monotonic() < deadline:
        for message in consumer.consume(500, 1.0):
            error = message.error()
            if error is None:
                found[int(message.key() or b"-1")] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.add(message.partition() or 0)
    consumer.close()
    lost = sorted(wanted - found.keys())
    repeated = sum(times - 1 for times in found.values())
    summary = {"acknowledged": len(wanted), "read": len(found), "lost": len(lost), "repeated": repeated}
    print(json.dumps({**summary, "complete": len(ends) == len(partitions), "examples": lost[:5]}))


def described(client, topic: str):  # type: ignore[no-untyped-def]
    """The topic's partitions by number. A broker that has just come up may not have heard of the topic: asks again."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not (found := client.list_topics(topic, 60).topics[topic].partitions):
        if time.monotonic() > deadline:
            raise SystemExit(f"no broker knows {topic}")
        time.sleep(0.1)
    return found


def describe(topic: str, what: str) -> None:
    from confluent_kafka.admin import AdminClient

    found = described(AdminClient({"bootstrap.servers": BOOTSTRAP}), topic)
    print(json.dumps({n: part.replicas if what == "placement" else part.leader for n, part in found.items()}))


def controller() -> None:
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": BOOTSTRAP})
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while (found := client.list_topics(timeout=60).controller_id) < 0:
        if time.monotonic() > deadline:
            raise SystemExit("no broker knows a controller")
        time.sleep(0.1)
    print(found)


async def knock(addresses: list[str]) -> None:
    """A connection that times out without any answer is "unanswered"; it asks twice, for 3 s."""
    stopping, loop = until_sigterm(), asyncio.get_running_loop()
    found: dict[str, Counter[str]] = {address: Counter() for address in addresses}

    async def one(address: str, where: tuple[str, int]) -> None:
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
            try:
                await loop.sock_connect(connection, where)
                found[address]["accepted"] += 1
            except ConnectionRefusedError:
                found[address]["refused"] += 1
            except OSError:
                found[address]["unanswered"] += 1

    hosts = [address.rpartition(":") for address in addresses]
    known = [(socket.gethostbyname(host), int(port)) for host, _, port in hosts]
    knocks: set[asyncio.Task[None]] = set()
    while not stopping:
        for address, where in zip(addresses, known, strict=True):
            task = loop.create_task(one(address, where))
            knocks.add(task)
            task.add_done_callback(knocks.discard)
        print(json.dumps(found), flush=True)
        await asyncio.sleep(KNOCK_EVERY_S)
    await asyncio.gather(*knocks)
    print(json.dumps(found), flush=True)


def python(topic: str, count: int) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all")
    futures = [producer.send(topic, key=str(number).encode(), value=b"python") for number in range(count)]
    for future in futures:
        future.get(timeout=TIMEOUT_MS / 1000)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=BOOTSTRAP,
        group_id=f"python-{time.time_ns()}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_MS,
    )
    read = 0
    for message in consumer:
        read += message.value == b"python"
        if read == count:
            break
    consumer.close()
    print(json.dumps({"sent": count, "read": read}))


def main(arguments: list[str]) -> None:
    if arguments == ["controller"]:
        controller()
        return
    if arguments[0] == "knock":
        asyncio.run(knock(arguments[1:]))
        return
    what, topic, *rest = arguments
    if what == "send":
        send(topic, None if rest[0] == "-" else int(rest[0]), rest[1])
    elif what == "follow":
        follow(topic, int(rest[0]), rest[1])
    elif what == "check":
        check(topic, rest[0])
    elif what in ("placement", "leaders"):
        describe(topic, what)
    else:
        python(topic, int(rest[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
