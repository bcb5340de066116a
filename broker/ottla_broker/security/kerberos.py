"""Kerberos by MIT's library: the contexts of `security.sasl.gssapi`. Imported by a broker with GSSAPI, and by no other.

Every method may read files, and `initiate` may wait for a key distribution center: none is for the event loop.

Who accepts: the library reads the keytab for each ticket, so a key that is added to it holds at once. Tickets that have
come are remembered in a file of the process (a replay cache): who has seen an exchange cannot repeat it.

Who initiates: the ticket-granting ticket and those for services are kept in the memory of the process, in two caches by
turns, so that a login never takes away what connections are being made with. It logs in again by `Renewal`, when the
next connection is made; what fails is tried again, and the ticket before is used as long as it is valid. The names of
hosts become those of principals by krb5.conf (dns_canonicalize_hostname, rdns, domain_realm).

Needs the extra `kerberos`: gssapi, and libgssapi_krb5.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import gssapi

from ottla_broker.security.kerberos_settings import KerberosSettings, Keytab, Renewal
from ottla_broker.security.sasl.gssapi import KerberosFailure

logger = logging.getLogger("ottla.security")

_KRB5: Final = gssapi.MechType.kerberos
_FIRST_CODE: Final = 0x96C73A00
"""Of MIT's numbers of the errors in RFC 4120."""
_NOTHING: Final = "Success"
"""What the library says where only the other of two codes says something."""
_PASSES: Final = (33, 34)
"""A ticket that is not valid yet, and a request that is a replay. Source: KerberosError.retriable."""


class Kerberos:
    """The contexts and tickets of one broker.

    Args:
        now: monotonic time in seconds.
        drawn: gives a number from 0 up to 1.

    Raises:
        KerberosFailure: there is no place for temporary files.
    """

    def __init__(self, now: Callable[[], float], drawn: Callable[[], float]) -> None:
        self._now = now
        self._drawn = drawn
        self._directory = _own_directory()
        """Of the replay cache."""
        self._acceptors: dict[Keytab, Any] = {}
        self._logins: dict[Keytab, _Login] = {}
        self._caches = f"MEMORY:{Path(self._directory.name).name}"
        self.default_realm = _default_realm()
        """That of krb5.conf; "" without one."""

    def check(self, keytab: Keytab) -> None:
        """Raises KerberosFailure: the keytab cannot be read, or has no key of its principal."""
        self._acceptors[keytab] = self._acceptor(keytab)

    def accept(self, settings: KerberosSettings) -> GssapiContext:
        """The service's side of a context. Raises KerberosFailure."""
        if not Path(self._directory.name).is_dir():  # something tidies temporary files up
            self._directory, self._acceptors = _own_directory(), {}
        keytab = settings.keytab
        found = self._acceptors.get(keytab)
        if found is None:
            found = self._acceptors[keytab] = self._acceptor(keytab)
        with _failures():
            return GssapiContext(gssapi.SecurityContext(creds=found, usage="accept"))

    def initiate(self, settings: KerberosSettings, host: str) -> GssapiContext:
        """The client's side of a context with the service on a host. Raises KerberosFailure."""
        keytab = settings.keytab
        login = self._logins.get(keytab)
        if login is None:
            made = _Login(keytab, f"{self._caches}-{len(self._logins)}-", self._now, self._drawn)
            login = self._logins.setdefault(keytab, made)
        credentials = login.credentials(settings.renewal)
        with _failures():
            return GssapiContext(
                gssapi.SecurityContext(
                    name=gssapi.Name(f"{settings.service}@{host}", gssapi.NameType.hostbased_service),
                    creds=credentials,
                    mech=_KRB5,
                    flags=(gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity),
                    usage="initiate",
                )
            )

    def _acceptor(self, keytab: Keytab) -> Any:
        store = {"keytab": keytab.file, "rcache": f"file2:{self._directory.name}/replays"}
        with _failures():
            return gssapi.Credentials(name=_principal(keytab.principal), usage="accept", mechs=[_KRB5], store=store)


class _Login:
    """The tickets of one principal. See the module."""

    def __init__(self, keytab: Keytab, caches: str, now: Callable[[], float], drawn: Callable[[], float]) -> None:
        self._keytab = keytab
        self._caches = caches
        self._now = now
        self._drawn = drawn
        self._number = 0
        self._credentials: Any = None
        self._ends_at = self._renews_at = -1.0
        self._lock = threading.Lock()
        """Held by the one that logs in; the others wait only when there is no ticket that is valid."""

    def credentials(self, renewal: Renewal) -> Any:
        """Raises KerberosFailure."""
        now = self._now()
        is_valid = now < self._ends_at
        if self._is_due(now) and self._lock.acquire(blocking=not is_valid):
            try:
                if self._is_due(now):  # else another one has logged in meanwhile
                    self._log_in(renewal, is_valid)
            finally:
                self._lock.release()
        return self._credentials

    def _is_due(self, now: float) -> bool:
        return now >= min(self._renews_at, self._ends_at)

    def _log_in(self, renewal: Renewal, is_valid: bool) -> None:
        principal = self._keytab.principal
        store = {"client_keytab": self._keytab.file, "ccache": f"{self._caches}{self._number % 2}"}
        try:
            with _failures():
                made = gssapi.Credentials(name=_principal(principal), usage="initiate", mechs=[_KRB5], store=store)
                lifetime_s = float(made.lifetime)
        except KerberosFailure as failure:
            if not is_valid:
                raise KerberosFailure(f"{principal} cannot log in with {self._keytab.file}: {failure}") from None
            self._renews_at = self._now() + renewal.shortest_s
            logger.warning("%s cannot log in again, and keeps its ticket: %s", principal, failure)
            return
        now = self._now()
        self._number += 1
        self._credentials = made
        self._ends_at = now + lifetime_s
        self._renews_at = now + renewal.wait_s(lifetime_s, self._drawn())
        logger.info("%s has logged in; its ticket is valid for %.0f s", principal, lifetime_s)


class GssapiContext:
    """See `security.sasl.gssapi.SecurityContext`."""

    def __init__(self, context: Any) -> None:
        context.__DEFER_STEP_ERRORS__ = False  # else a failed step with a token for the other side raises later
        self._context = context
        self._is_initiator = context.usage == "initiate"

    @property
    def is_established(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        with _failures():
            name = self._context.target_name if self._is_initiator else self._context.initiator_name
            return bytes(name).decode(errors="backslashreplace")

    def step(self, token: bytes) -> bytes:
        with _failures():
            return bytes(self._context.step(token or None) or b"")

    def wrap(self, message: bytes) -> bytes:
        with _failures():
            return bytes(self._context.wrap(message, False).message)

    def unwrap(self, token: bytes) -> bytes:
        with _failures():
            return bytes(self._context.unwrap(token).message)


def _own_directory() -> tempfile.TemporaryDirectory[str]:
    """That nobody else may write to."""
    try:
        return tempfile.TemporaryDirectory(prefix="ottla-kerberos-", ignore_cleanup_errors=True)
    except OSError as error:
        raise KerberosFailure(f"the replay cache needs a directory for temporary files: {error}") from None


def _default_realm() -> str:
    try:
        name = bytes(_principal("x").canonicalize(_KRB5)).decode(errors="backslashreplace")
    except gssapi.exceptions.GSSError:
        return ""
    return name.partition("@")[2]


def _principal(name: str) -> Any:
    return gssapi.Name(name, gssapi.NameType.kerberos_principal)


@contextmanager
def _failures() -> Iterator[None]:
    """Whatever the library refuses is a KerberosFailure."""
    try:
        yield
    except gssapi.exceptions.GSSError as error:
        minor = error.min_code & 0xFFFFFFFF
        said = [*error.get_all_statuses(error.min_code, False), *error.get_all_statuses(error.maj_code, True)]
        reason = next((text for text in said if text not in ("", _NOTHING)), _NOTHING)
        raise KerberosFailure(reason, passes=minor - _FIRST_CODE in _PASSES) from None
