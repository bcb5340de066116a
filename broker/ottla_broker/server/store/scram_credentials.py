"""ScramCredentials: the SCRAM credentials of all users, as they are stored at /config/users.

They stand beside the quotas of the user and are read with them (`stored_quotas`): this only keeps what is in force.

Source: kafka.server.UserConfigHandler, org.apache.kafka.common.security.authenticator.CredentialCache.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ottla_broker.quotas.entities import QuotaEntity
from ottla_broker.security.sasl.scram import ScramAlgorithm, ScramCredential


class ScramCredentials:
    """The SCRAM credentials that one broker knows."""

    def __init__(self, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self._logger = logger
        self._by_user: dict[str, dict[ScramAlgorithm, ScramCredential]] = {}

    def on_stored(self, entity: QuotaEntity, values: Mapping[str, str]) -> None:
        """Takes the stored values of an entity; none when it has been removed. Only users have credentials."""
        user = entity.user
        if not isinstance(user, str) or entity.client_id is not None:
            return
        found: dict[ScramAlgorithm, ScramCredential] = {}
        for algorithm in ScramAlgorithm:
            if algorithm.value in values:
                try:
                    found[algorithm] = ScramCredential.decode(values[algorithm.value])
                except ValueError as error:
                    self._logger.error(
                        "user %s cannot log in by %s, as it is stored at /config/users: %s",
                        user,
                        algorithm.value,
                        error,
                    )
        if found:
            self._by_user[user] = found
        else:
            self._by_user.pop(user, None)

    def find(self, algorithm: ScramAlgorithm, user: str) -> ScramCredential | None:
        """None when there is no such user, or without a credential of this kind."""
        return self._by_user.get(user, {}).get(algorithm)
