"""RenewedContext: the context of connections that a program opens now and then, read again when its stores change.

For what connects on a thread of its own, and may wait for a file: the session with ZooKeeper. A broker's listeners and
its connections to other brokers have `server.edge.tls_contexts`.
"""

from __future__ import annotations

import time
from logging import Logger
from ssl import SSLContext

from ottla_broker.security.tls_context import LoadedTls, digest_of, load_client
from ottla_broker.security.tls_settings import TlsError, TlsSettings


class RenewedContext:
    """See the module. Calling it gives the context; a store that cannot be used leaves the one before in force.

    Args:
        what: is connected to; for messages.

    Raises:
        TlsError: by the first call, when a store cannot be used.
    """

    def __init__(self, settings: TlsSettings, what: str, logger: Logger) -> None:
        self._settings = settings
        self._what = what
        self._logger = logger
        self._loaded: LoadedTls | None = None

    def __call__(self) -> SSLContext:
        loaded = self._loaded
        if loaded is None:
            loaded = self._loaded = load_client(self._settings, time.time())
            return loaded.context
        try:
            if digest_of(self._settings) != loaded.digest:
                loaded = self._loaded = load_client(self._settings, time.time())
                self._logger.info("%s: new keys and certificates are in force", self._what)
        except TlsError as error:
            self._logger.error("%s: keys and certificates stay as they were: %s", self._what, error)
        return loaded.context
