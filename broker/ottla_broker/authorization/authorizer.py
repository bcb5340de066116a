"""Authorizer: the port that says what a principal may do. A broker without authorizer.class.name has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.security.principals import Principal


class AclCheck(NamedTuple):
    """One question: whether an operation is allowed on the resource of this type and name."""

    operation: AclOperation
    resource_type: ResourceType
    name: str


class Authorizer(Protocol):
    """Decides from what it knows: it does not block, and does not raise.

    Source: org.apache.kafka.server.authorizer.Authorizer (KIP-504).
    """

    version: int
    """Grows with every change that may change a decision: decisions are kept until then."""

    def decide(self, principal: Principal, address: str, checks: Sequence[AclCheck]) -> list[bool]:
        """Whether each is allowed to a principal that is connected from an address, as text."""
        ...

    def allows_any(
        self, principal: Principal, address: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the operation is allowed on at least one name that there may be, whatever it is (KIP-679)."""
        ...
