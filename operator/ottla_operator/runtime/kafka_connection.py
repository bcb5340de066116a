"""The Kafka client of one cluster, which is replaced when the addresses of the brokers change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla_operator.ports import KafkaAdmin, KafkaUnavailable


class KafkaConnection:
    """At most one client. `connect` makes one for a list of host:port; the client connects when it is first used."""

    def __init__(self, connect: Callable[[Sequence[str]], KafkaAdmin]) -> None:
        self._connect = connect
        self._client: KafkaAdmin | None = None
        self._bootstrap: tuple[str, ...] = ()

    @property
    def client(self) -> KafkaAdmin | None:
        """The client that was asked for last; None before that and after `close`."""
        return self._client

    async def to(self, bootstrap: tuple[str, ...]) -> KafkaAdmin:
        """The client for these addresses.

        Raises:
            KafkaUnavailable: there is no address.
        """
        if bootstrap != self._bootstrap:
            await self.close()
        if not bootstrap:
            raise KafkaUnavailable("the cluster has no brokers yet")
        if self._client is None:
            self._client, self._bootstrap = self._connect(bootstrap), bootstrap
        return self._client

    async def close(self) -> None:
        """Closes the client; the next call of `to` makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
