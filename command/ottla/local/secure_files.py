"""What makes a local fleet secure, in its data directory: keys, certificates, passwords, and the files of clients.

    DIR/security/brokers.pem       key and certificate of the brokers, for 127.0.0.1 and localhost
    DIR/security/authority.pem     the authority that has signed it, and that everybody trusts
    DIR/security/passwords.json    of the users of `USERS`
    DIR/clients/                   see `client_files`; written at every start, as addresses may change

`security` is made once. The key of the authority is kept nowhere: nobody can sign another certificate that the brokers
trust. Directories have the mode 0700, files 0600.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from ottla.local.client_files import MECHANISM, SUFFIXES, client_files, java_settings
from ottla_broker.security.client_settings import is_security_key

ADMIN, APP = "admin", "app"
USERS = (ADMIN, APP)
"""The one who may do everything, and an ordinary one."""
PREFIX = f"{APP}-"
"""Of what the ordinary one may use."""
BROKERS = "CN=brokers"
"""The user that brokers are to each other: the subject of their certificate."""
DIRECTORY, CLIENTS = "security", "clients"
PRIVATE_UMASK = 0o077
"""Of the processes of a secure fleet: records, logs and the coordination store are their owner's alone as well."""
_KEYS, _AUTHORITY, _PASSWORDS = "brokers.pem", "authority.pem", "passwords.json"
_PASSWORD_BYTES = 24


class SecureFilesError(Exception):
    """They cannot be made or used; the message says what to do."""


class SecureFiles:
    """Args:
    data: the fleet's data directory.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._directory = data / DIRECTORY
        self.clients = data / CLIENTS

    def make(self) -> None:
        """Makes `security` as a whole, unless it is there.

        Raises:
            SecureFilesError: `security` or `clients` is there, and not of a secure fleet.
            OSError: something cannot be written.
        """
        if self._is_made:
            return
        for path in (self._directory, self.clients):
            if path.exists():
                raise SecureFilesError(f"{path} is in the way of the fleet's files; move it, or choose another --data")
        unfinished = self._data / f"{DIRECTORY}.new"
        _remove(unfinished, (_KEYS, _AUTHORITY, _PASSWORDS))
        unfinished.mkdir(0o700)
        from ottla.local.certificates import certificates_of_this_machine

        keys, authority = certificates_of_this_machine(BROKERS)
        _write(unfinished / _KEYS, keys)
        _write(unfinished / _AUTHORITY, authority)
        passwords = {user: secrets.token_urlsafe(_PASSWORD_BYTES) for user in USERS}
        _write(unfinished / _PASSWORDS, (json.dumps(passwords, indent=1) + "\n").encode())
        unfinished.rename(self._directory)

    @property
    def _is_made(self) -> bool:
        return (self._directory / _PASSWORDS).is_file()

    def passwords(self) -> dict[str, str]:
        """The password of each user. Raises SecureFilesError."""
        path = self._directory / _PASSWORDS
        try:
            found = json.loads(path.read_text())
            return {user: str(found[user]) for user in USERS}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SecureFilesError(
                f"{path} cannot be read ({type(error).__name__}): restore {self._directory}, or choose another --data"
            ) from None

    def broker_keys(self) -> dict[str, str]:
        """The broker keys that make the listeners INTERNAL and CLIENT secure, and set up the authorizer."""
        return {
            "listener.security.protocol.map": "INTERNAL:SSL,CLIENT:SASL_SSL",
            **self._stores(),
            "listener.name.internal.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.client.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN};User:{BROKERS}",
        }

    def internal_client_keys(self) -> dict[str, str]:
        """How a client speaks to the listener INTERNAL: as the brokers do, with their rights."""
        return {"security.protocol": "SSL", **self._stores()}

    def client_keys(self) -> list[dict[str, str]]:
        """How a client of each user speaks to the listener CLIENT. Raises SecureFilesError."""
        trusted = self._directory / _AUTHORITY
        settings = [java_settings(user, password, "", trusted) for user, password in self.passwords().items()]
        return [{key: value for key, value in one.items() if is_security_key(key)} for one in settings]

    def write_client_files(self, bootstrap: str) -> None:
        """Writes the files for clients of these addresses. Raises SecureFilesError, OSError."""
        passwords = self.passwords()
        self.clients.mkdir(0o700, exist_ok=True)
        self.clients.chmod(0o700)
        trusted = self.clients / _AUTHORITY
        _write(trusted, (self._directory / _AUTHORITY).read_bytes())
        for user, password in passwords.items():
            for name, text in client_files(user, password, bootstrap, trusted).items():
                _write(self.clients / name, text.encode())

    def delete(self) -> None:
        """Deletes what this class writes, and no other file. OSError when something cannot be deleted."""
        if self._is_made:
            of_clients = [f"{user}{suffix}" for user in USERS for suffix in SUFFIXES]
            _remove(self.clients, (_AUTHORITY, *of_clients))
            _remove(self._directory, (_KEYS, _AUTHORITY, _PASSWORDS))
        _remove(self._data / f"{DIRECTORY}.new", (_KEYS, _AUTHORITY, _PASSWORDS))

    def _stores(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._directory / _KEYS),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / _AUTHORITY),
        }


def _write(path: Path, data: bytes) -> None:
    """Writes a file that only its owner reads, as a whole: whoever reads it meanwhile reads the old one."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    temporary.replace(path)


def _remove(directory: Path, names: tuple[str, ...]) -> None:
    """Removes these files of a directory, and the directory where it is then empty."""
    if directory.is_symlink() or not directory.is_dir():
        return
    for name in names:
        (directory / name).unlink(missing_ok=True)
        (directory / f"{name}.new").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()
