"""Clients that are not served: what each tells its user while it tries."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
from collections.abc import Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from tests.integration.clients.aiokafka_client import aiokafka_security
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaError, JavaMachine
from tests.integration.clients.kafka_python import python_security
from tests.integration.clients.kcat import options
from tests.integration.clients.librdkafka import librdkafka_security
from tests.integration.clients.security import Security


class Refused:
    """A client that is served fails the test.

    Args:
        log: where kafka-python and aiokafka give their reasons.
        machine: gives the JVM, once one is needed.
    """

    def __init__(self, log: pytest.LogCaptureFixture, machine: Callable[[], JavaMachine]) -> None:
        self._log = log
        self._machine = machine

    def must_tell(self, client: str, bootstrap: str, security: Security, expected: str) -> None:
        """What the client of that name tells has the pattern `expected` in it."""
        if client == "librdkafka":
            self._await_librdkafka(bootstrap, security, expected)
            return
        attempts = {
            "kcat": self._kcat,
            "kafka-python": self._kafka_python,
            "aiokafka": self._aiokafka,
            "java": self._java,
        }
        told = attempts[client](bootstrap, security)
        assert re.search(expected, told), told

    def _await_librdkafka(self, bootstrap: str, security: Security, expected: str) -> None:
        """It tells as it goes, and never gives up by itself."""
        errors: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "error_cb": errors.append,
                "log_level": 0,
                **librdkafka_security(security),
            }
        )

        def has_told() -> bool:
            producer.poll(0.1)
            return re.search(expected, str(errors)) is not None

        await_that(has_told, f"librdkafka tells {expected}")

    def _kcat(self, bootstrap: str, security: Security) -> str:
        command = ["kcat", "-b", bootstrap, *options(librdkafka_security(security)), "-P", "-t", "never-created"]
        done = subprocess.run(command, input="x", capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode != 0
        return done.stderr

    def _kafka_python(self, bootstrap: str, security: Security) -> str:
        with self._log.at_level(logging.INFO), pytest.raises(Exception, match="Unable to bootstrap") as raised:
            KafkaProducer(  # unlike its admin client, it leaves no thread behind
                bootstrap_servers=bootstrap.split(","), bootstrap_timeout_ms=2000, **python_security(security)
            )
        return f"{raised.value!r} {self._log.text}"

    def _aiokafka(self, bootstrap: str, security: Security) -> str:
        async def start() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, **aiokafka_security(security))
            try:
                await admin.start()
            finally:
                await admin.close()

        with self._log.at_level(logging.INFO), pytest.raises(Exception, match="Unable to bootstrap") as raised:
            asyncio.run(start())
        return f"{raised.value!r} {self._log.text}"

    def _java(self, bootstrap: str, security: Security) -> str:
        config = {"default.api.timeout.ms": "3000", "request.timeout.ms": "2000", **security}
        with pytest.raises(JavaError) as raised:
            self._machine().ask("topics", bootstrap=bootstrap, config=config)
        return str(raised.value)
