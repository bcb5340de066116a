"""The operator of the measurement: `ottla operator run` with a fleet that runs on this machine and not in pods.

`python -m bench.operator_scale.operator_process BOOTSTRAP LEASE_NAMESPACE`, with KUBECONFIG. Its Kafka clients connect
to BOOTSTRAP, whatever the addresses of the brokers' Services are; everything else is what the product does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from ottla_operator.api.fleet import BrokerReport, MembershipReport, Reconfiguration, ServerReport
from ottla_operator.api.objects import Obj
from ottla_operator.api.pipeline_report import PipelineReport
from ottla_operator.command import configure_log
from ottla_operator.effects.environment import ProductionEnvironment
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.ports import KafkaAdmin
from ottla_operator.runtime.operator import Operator, OperatorSettings


class LocalFleetEnvironment:
    """The production environment, with Kafka clients of the local fleet."""

    def __init__(self, bootstrap: Sequence[str]) -> None:
        self._bootstrap = bootstrap
        self._other = ProductionEnvironment()

    def now(self) -> str:
        return self._other.now()

    def password(self) -> str:
        return self._other.password()

    async def broker_report(self, pod: Obj) -> BrokerReport | None:
        return await self._other.broker_report(pod)

    async def pipeline_report(self, pod: Obj) -> PipelineReport | None:
        return await self._other.pipeline_report(pod)

    async def server_report(self, pod: Obj) -> ServerReport | None:
        return await self._other.server_report(pod)

    async def membership(self, leader: Obj) -> MembershipReport | None:
        return await self._other.membership(leader)

    async def accepts_super_user(self, pod: Obj, password: str) -> bool | None:
        return await self._other.accepts_super_user(pod, password)

    async def reconfigure(self, leader: Obj, password: str, change: Reconfiguration) -> str:
        return await self._other.reconfigure(leader, password, change)

    def kafka(self, bootstrap: Sequence[str]) -> KafkaAdmin:
        return KafkaPythonAdmin(self._bootstrap)


def main() -> None:
    bootstrap, namespace = sys.argv[1:]
    configure_log(sys.stderr)
    settings = OperatorSettings(
        images=ContainerImages("ottla:1", "zookeeper:3.9"),
        namespace=namespace,
        identity=f"operator-{os.getpid()}",
        watch_namespaces=(),
        reads_nodes=False,
        liveness="",
    )
    asyncio.run(Operator(settings, LocalFleetEnvironment(bootstrap.split(","))).run())


if __name__ == "__main__":
    main()
