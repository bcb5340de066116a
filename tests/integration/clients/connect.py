"""Workers of Apache Kafka's Connect 3.9.1, as connect-standalone.sh and connect-distributed.sh start them."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.local.jars import cache_directory, find_java, kafka_class_path
from ottla.local.ports import free_port
from tests.integration.clients.driver import LIMIT_S, await_that

JARS = cache_directory() / "kafka-connect-jars"
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_LOGGING = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c:%L)%n
"""

STANDALONE = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
    "offset.flush.interval.ms": "10000",
}
"""config/connect-standalone.properties; what names a place on the machine is added by whoever starts the worker."""
DISTRIBUTED = {
    **STANDALONE,
    "group.id": "connect-cluster",
    "offset.storage.topic": "connect-offsets",
    "config.storage.topic": "connect-configs",
    "status.storage.topic": "connect-status",
}
"""config/connect-distributed.properties; its topics with the replication factor 3 that Connect has by default."""


class Worker:
    """A worker; `start` returns when it answers requests. `log` is what it has printed."""

    def __init__(
        self,
        folder: Path,
        name: str,
        bootstrap: str,
        config: Mapping[str, str],
        connectors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """`connectors`: of a standalone worker, which gets them as files; a distributed one has none."""
        self._log = folder / f"{name}.log"
        self.address = f"127.0.0.1:{free_port()}"
        jar = next(JARS.glob("connect-file-*.jar"))
        places = {
            "bootstrap.servers": bootstrap,
            "plugin.path": str(jar),
            "listeners": f"http://{self.address}",
            "rest.advertised.host.name": "127.0.0.1",
        }
        files = [_properties(folder / f"{name}.properties", {**places, **config})]
        files += [_properties(folder / f"{one['name']}.properties", one) for one in connectors]
        mode = "ConnectStandalone" if "offset.storage.file.filename" in config else "ConnectDistributed"
        logging = folder / "log4j.properties"
        logging.write_text(_LOGGING)
        self._command = [
            find_java(), *JVM_OPTIONS, f"-Dlog4j.configuration=file:{logging}", "-cp", kafka_class_path(),
            f"org.apache.kafka.connect.cli.{mode}", *map(str, files),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Starts the process and does not wait."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def await_ready(self) -> None:
        """Until it answers requests."""

        def is_ready() -> bool:
            assert self._process is not None and self._process.poll() is None, self.log[-3000:]
            return self.ask("GET", "/connectors")[0] == 200

        await_that(is_ready, "the worker answers")

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the answer of a request to its REST interface; status 0 when nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            is_json = "json" in error.headers.get_content_type()  # no page of a server that still starts
            return error.code, json.load(error) if is_json else None
        except OSError:
            return 0, None

    def task(self, connector: str) -> Mapping[str, str]:
        """The state of the only task of a connector; empty while there is none."""
        status, answer = self.ask("GET", f"/connectors/{connector}/status")
        return answer["tasks"][0] if status == 200 and answer["tasks"] else {}

    def await_state(self, connector: str, state: str) -> Mapping[str, str]:
        """The task of a connector once it has this state."""
        await_that(lambda: self.task(connector).get("state") == state, f"the task of {connector} is {state}")
        return self.task(connector)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(LIMIT_S)


def _properties(path: Path, values: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path
