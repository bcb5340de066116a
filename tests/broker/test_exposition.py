"""/metrics of a broker with thousands of topics is made in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import h11
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla_broker import exposition
from ottla_broker.exposition import Exposition
from ottla_broker.http_server import HttpServer
from ottla_broker.metrics import Metrics, SourceFamily
from ottla_broker.server.edge.http_endpoints import HttpResponse


def many_metrics() -> Metrics:
    metrics = Metrics()
    for number in range(25):
        metrics.counter("bytesin", "Bytes.", topic=f"t{number}").inc(number)
    metrics.gauge("partitions", "Partitions.", lambda: 7.0)
    metrics.histogram("seconds", "Seconds.", (1.0, 2.0)).observe(1.5)
    metrics.add_source(lambda: [SourceFamily("pushed", "Pushed.", False, [({"client": "c"}, 3.0)])])
    return metrics


def test_the_parts_of_the_metrics_are_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Exposition(many_metrics()).text()
    monkeypatch.setattr(exposition, "SAMPLES_PER_PART", 10)
    parts = list(Exposition(many_metrics()).parts())
    assert b"".join(parts) == whole
    assert max(part.count(b"\nbytesin") + part.startswith(b"bytesin") for part in parts) <= 10
    families = {family.name: family for family in text_string_to_metric_families(whole.decode())}
    assert {sample.labels["topic"]: sample.value for sample in families["bytesin"].samples} == {
        f"t{number}": float(number) for number in range(25)
    }
    assert [sample.value for sample in families["pushed"].samples] == [3.0]


async def test_other_work_comes_between_the_parts_of_an_http_response() -> None:
    order: list[str] = []
    others: list[asyncio.Future[None]] = []

    async def other_work() -> None:
        while len(order) < 20:
            order.append("other")
            await asyncio.sleep(0)

    def route() -> HttpResponse:
        def parts() -> Iterator[bytes]:
            others.append(asyncio.ensure_future(other_work()))
            for number in range(3):
                order.append("part")
                yield str(number).encode()

        return HttpResponse(200, "text/plain", parts())

    server = HttpServer({"/metrics": route})
    await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        client = h11.Connection(h11.CLIENT)
        request = h11.Request(method="GET", target="/metrics", headers=[("host", "h"), ("connection", "close")])
        writer.write((client.send(request) or b"") + (client.send(h11.EndOfMessage()) or b""))
        client.receive_data(await reader.read())
        events = [client.next_event() for _ in range(5)]
        writer.close()
    finally:
        server.close()
    assert isinstance(events[0], h11.Response) and (b"transfer-encoding", b"chunked") in list(events[0].headers)
    assert b"".join(bytes(event.data) for event in events[1:] if isinstance(event, h11.Data)) == b"012"
    first, last = order.index("part"), len(order) - 1 - order[::-1].index("part")
    assert "other" in order[first:last], "the loop did nothing else"
