"""StoredPasswords: the values of type password among stored configuration, which are encoded there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla_broker.config.definitions import find_key
from ottla_broker.security.password_encoder import PasswordEncoder, PasswordError


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """Stored values, decoded, and the encoded passwords that cannot be."""

    readable: dict[str, str]
    unreadable: dict[str, str]


class StoredPasswords:
    """The stored passwords of one broker.

    Args:
        encoder: None without password.encoder.secret.
        in_thread: Clock.in_thread: each password takes milliseconds.
    """

    def __init__(
        self,
        encoder: PasswordEncoder | None,
        in_thread: Callable[..., Awaitable[Any]],
        logger: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._encoder = encoder
        self._in_thread = in_thread
        self._logger = logger

    async def decode(self, path: str, stored: Mapping[str, str]) -> DecodedValues:
        """A password that cannot be decoded is logged, by its key alone, and not used."""
        found = DecodedValues({}, {})
        for name, value in stored.items():
            if not _is_password(name):
                found.readable[name] = value
                continue
            try:
                if self._encoder is None:
                    raise PasswordError("password.encoder.secret is not set")
                found.readable[name] = await self._in_thread(self._encoder.decode, value)
            except PasswordError as error:
                self._logger.error("%s: the password %s is ignored: %s", path, name, error)
                found.unreadable[name] = value
        return found

    async def encode(self, values: Mapping[str, str]) -> dict[str, str]:
        """What is to be stored. Passwords are among `values` only with an encoder."""
        stored = dict(values)
        for name in filter(_is_password, values):
            assert self._encoder is not None
            stored[name] = await self._in_thread(self._encoder.encode, values[name])
        return stored

    async def are_old(self, stored: Mapping[str, str]) -> bool:
        """Whether a password is encoded with password.encoder.old.secret."""
        encoder = self._encoder
        if encoder is None or encoder.old_secret is None:
            return False
        for name in filter(_is_password, stored):
            if not await self._in_thread(encoder.is_current, stored[name]):
                return True
        return False


def _is_password(name: str) -> bool:
    known = find_key(name)
    return known is not None and known.is_sensitive
