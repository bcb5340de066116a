"""Access: what one principal at one address may do, as decided so far, and the log of it.

Decisions are kept until the authorizer's version changes. A client that names many resources, or long ones, fills no
memory: beyond `MOST_DECISIONS` what was decided is forgotten, and what is decided of a name of more than `LONGEST_KEPT`
characters at once. Each request is logged, decided again or not.

Source: the log lines of kafka.authorizer.logger (AclAuthorizer.logAuditMessage).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Set
from typing import Final

from ottla_broker.authorization.authorizer import AclCheck, Authorizer
from ottla_broker.authorization.resources import AclOperation, ResourceType, mask, operations_of
from ottla_broker.security.principals import Principal

MOST_DECISIONS: Final = 4096

LONGEST_KEPT: Final = 249
"""Characters of a topic's name, at most; groups and transactional ids of real clients are no longer."""

audit: Final = logging.getLogger("kafka.authorizer.logger")

NOTHING: Final[frozenset[str]] = frozenset()


_NOTHING_DECIDED: Final[dict[str, bool]] = {}


def _kind(operation: AclOperation, resource_type: ResourceType) -> int:
    """Both as one number: the hash of an enumeration is that of its name, and slow."""
    return operation << 4 | resource_type


class Access:
    """What one connection may do, as long as it has this principal."""

    __slots__ = ("_address", "_authorizer", "_count", "_decided", "_principal", "_version")

    def __init__(self, authorizer: Authorizer, principal: Principal, address: str) -> None:
        """
        Args:
            address: of the client, as text.
        """
        self._authorizer = authorizer
        self._principal = principal
        self._address = address
        self._version = authorizer.version
        self._decided: dict[int, dict[str, bool]] = {}
        """By `_kind` and name."""
        self._count = 0

    def allows(
        self, request: str, operation: AclOperation, resource_type: ResourceType, name: str, *, logs: bool = True
    ) -> bool:
        """Whether it is allowed to do this with one resource.

        Args:
            request: the name of the API, for the log.
            logs: False where what is denied is left out of a response silently.
        """
        if self._known(operation, resource_type).get(name) and not audit.isEnabledFor(logging.DEBUG):
            return True
        return not self.denied(request, operation, resource_type, (name,), logs=logs)

    def denied(
        self,
        request: str,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Collection[str] | Mapping[str, int],
        *,
        logs: bool = True,
    ) -> Set[str]:
        """The names on which the operation is not allowed. The rest as for `allows`.

        Args:
            names: as often as the request has them; or each once, with that number.
        """
        decided = self._known(operation, resource_type)
        suspects = {name for name in names if not decided.get(name)}
        if suspects:
            unknown = [name for name in suspects if name not in decided]
            if unknown:
                suspects -= self._decide(operation, resource_type, unknown)
        if logs and (suspects or audit.isEnabledFor(logging.DEBUG)):
            self._log(request, operation, resource_type, names, suspects)
        return suspects or NOTHING

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on any name at all. Nothing is logged: no resource is asked for."""
        return self._authorizer.allows_any(self._principal, self._address, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """AuthorizedOperations of a resource (KIP-430); not logged."""
        return mask(
            *(
                operation
                for operation in operations_of(resource_type)
                if self.allows("", operation, resource_type, name, logs=False)
            )
        )

    def _known(self, operation: AclOperation, resource_type: ResourceType) -> dict[str, bool]:
        if self._version != self._authorizer.version or self._count > MOST_DECISIONS:
            self._decided.clear()
            self._count = 0
            self._version = self._authorizer.version
        found = self._decided.get(_kind(operation, resource_type))
        return _NOTHING_DECIDED if found is None else found

    def _decide(self, operation: AclOperation, resource_type: ResourceType, names: list[str]) -> set[str]:
        """The names on which the operation is allowed."""
        checks = [AclCheck(operation, resource_type, name) for name in names]
        answers = self._authorizer.decide(self._principal, self._address, checks)
        kept = {name: answer for name, answer in zip(names, answers, strict=True) if len(name) <= LONGEST_KEPT}
        self._decided.setdefault(_kind(operation, resource_type), {}).update(kept)
        self._count += len(kept)
        return {name for name, answer in zip(names, answers, strict=True) if answer}

    def _log(
        self,
        request: str,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Collection[str] | Mapping[str, int],
        denied: Set[str],
    ) -> None:
        for name, count in Counter(names).items():
            is_denied = name in denied
            audit.log(
                logging.INFO if is_denied else logging.DEBUG,
                "Principal = %s is %s Operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s with "
                "resourceRefCount = %d",
                self._principal,
                "Denied" if is_denied else "Allowed",
                operation.label,
                self._address,
                resource_type.label,
                name,
                request,
                count,
            )
