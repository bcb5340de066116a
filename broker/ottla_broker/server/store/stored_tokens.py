"""StoredTokens: reads, watches and changes the delegation tokens in the coordination store; knows who logs in by one.

The znodes and their changes are Apache Kafka's, so that brokers of both kinds take each other's tokens. A change is one
transaction of the token's znode, conditional on its version, and of a change node. Of two brokers that change a token
at once, the loser decides again by what the other has stored.

What was known stays in force while the store cannot be reached; a token ends at its time all the same. A token whose
znode cannot be read is not known. The active controller deletes those that have ended, as Apache Kafka's does.

Not here: how changes are followed (`change_nodes`), who may change a token (`security.delegation_tokens`). It uses two
ports, Coordination and Clock.

Source: kafka.server.DelegationTokenManagerZk, kafka.security.CredentialProvider.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla_broker.controller.store import MAX_ZNODE_BYTES
from ottla_broker.coordination import security_znodes as znodes
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import (
    BadVersion,
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    NoNode,
    Operation,
    Set,
)
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.delegation_tokens import DelegationToken, TokenPeriods, TokenSecret, new_token
from ottla_broker.security.principals import Principal
from ottla_broker.security.sasl.scram import ScramAlgorithm, ScramCredential, ScramIdentity
from ottla_broker.server.store.change_nodes import ChangeNode, ChangeNodes, ChangePath
from ottla_broker.server.store.registration import make_path

_READS_AT_ONCE: Final = 100
ChangeToken = Callable[[DelegationToken], DelegationToken | None]
"""Gives what a token becomes; None: it is removed. Raises KafkaError to change nothing."""


class StoredTokens:
    """The tokens of one cluster, as one broker knows them. `start` before use.

    Args:
        secret: the same on every broker of the cluster.
    """

    def __init__(
        self,
        secret: TokenSecret,
        periods: TokenPeriods,
        coordination: Coordination,
        clock: Clock,
        logger: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.periods = periods
        self._secret = secret
        self._coordination = coordination
        self._clock = clock
        self._logger = logger
        self._tokens: dict[str, DelegationToken] = {}
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        """By hmac. Who finds one has it: a look-up by a hash tells nothing of how much of it is right."""
        self._credentials: dict[str, dict[tuple[ScramAlgorithm, bytes], ScramCredential]] = {}
        """By id; then by mechanism and salt. Of tokens by which somebody has logged in."""
        self._changing = asyncio.Lock()
        """Whoever reads or writes tokens holds it until they are in force: what was read first never replaces what was
        read later."""
        self._changes = ChangeNodes(
            ChangePath(znodes.TOKEN_CHANGES, "delegation tokens", _READS_AT_ONCE, doubts_listed=True),
            coordination,
            clock,
            logger,
            read_all=self._read_all,
            apply=self._apply_changes,
        )

    async def start(self) -> None:
        """Reads all tokens, and what changes from here on. Raises CoordinationError."""
        await self._make_paths()
        await self._changes.start()
        self._changes.follow()

    @property
    def known(self) -> Collection[DelegationToken]:
        """The tokens that are stored, with those that have ended and are not deleted yet."""
        return self._tokens.values()

    def hmac(self, token: DelegationToken) -> bytes:
        """The HMAC of a known token."""
        return self._hmacs.get(token.token_id) or self._secret.hmac(token.token_id)

    def identity(self, algorithm: ScramAlgorithm, token_id: str, salt: bytes) -> ScramIdentity | None:
        """Who logs in by a token; None when it is unknown or has ended. Takes milliseconds at the first time.

        Apache Kafka lets in whoever has a token that has ended and is not deleted yet, for a session without a length.

        Args:
            salt: of the credential. The one that an unknown name would get: whether a token exists is not told.
        """
        token = self._tokens.get(token_id)
        now_ms = self._clock.now_ms()
        if token is None or token.is_expired(now_ms):
            return None
        kept = self._credentials.setdefault(token_id, {})
        credential = kept.get((algorithm, salt))
        if credential is None:
            credential = kept[algorithm, salt] = self._secret.credential(algorithm, token_id, salt)
        return ScramIdentity(credential, replace(token.owner, by_token=True), token.end_ms - now_ms)

    async def create(
        self, owner: Principal, requester: Principal, renewers: tuple[Principal, ...], asked_ms: int
    ) -> DelegationToken:
        """A new one, in force here.

        Args:
            asked_ms: see `new_token`.

        Raises:
            KafkaError: INVALID_REQUEST for more renewers than a znode holds.
        """
        token_id = base64.urlsafe_b64encode(self._clock.uuid4().bytes).rstrip(b"=").decode()
        token = new_token(token_id, owner, requester, renewers, asked_ms, self._clock.now_ms(), self.periods)
        data = znodes.encode_token(token)
        if len(data) > MAX_ZNODE_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"the token would take {len(data)} bytes, a znode has {MAX_ZNODE_BYTES}"
            )
        async with self._changing:
            while not await self._write(Create(znodes.token_path(token_id), data), token_id):
                pass
            self._put(token)
        return token

    async def change(self, hmac: bytes, change: ChangeToken) -> DelegationToken | None:
        """Changes the token of that hmac by what is stored of it, and gives what it is then; None: it is removed.

        Raises:
            KafkaError: DELEGATION_TOKEN_NOT_FOUND, UNKNOWN_SERVER_ERROR for a znode that cannot be read, and what
                `change` raises.
        """
        token_id = self._ids.get(hmac)
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return await self._change(token_id, change)

    def remove_expired(self, is_controller: Callable[[], bool], every_s: float) -> None:
        """Deletes the tokens that have ended, every so often, while this broker is the active controller."""
        self._clock.spawn(self._remove_regularly(is_controller, every_s), name="removal of expired delegation tokens")

    async def _remove_regularly(self, is_controller: Callable[[], bool], every_s: float) -> None:
        while True:
            await self._clock.sleep(every_s)
            if is_controller():
                try:
                    await self._remove_expired(self._clock.now_ms())
                except CoordinationError as error:
                    self._logger.warning("expired delegation tokens stay until the next time: %s", error)

    async def _remove_expired(self, now_ms: int) -> None:
        for token in [token for token in self.known if token.is_expired(now_ms)]:
            try:
                await self._change(token.token_id, lambda stored: None if stored.is_expired(now_ms) else stored)
            except KafkaError as error:
                self._logger.warning("delegation token %s stays: %s", token.token_id, error.message)

    async def _change(self, token_id: str, change: ChangeToken) -> DelegationToken | None:
        path = znodes.token_path(token_id)
        async with self._changing:
            while True:
                try:
                    stored, version = await self._stored(token_id)
                except NoNode:
                    self._forget(token_id)
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
                except ZnodeError as error:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{error}: delete this znode") from None
                wanted = change(stored)
                if wanted != stored:
                    write = Delete(path, version) if wanted is None else Set(path, znodes.encode_token(wanted), version)
                    if not await self._write(write, token_id):
                        continue
                if wanted is None:
                    self._forget(token_id)
                else:
                    self._put(wanted)
                return wanted

    async def _write(self, write: Operation, token_id: str) -> bool:
        """False: the token is not as it was, or a path was missing."""
        notification = Create(znodes.TOKEN_CHANGE_PREFIX, token_id.encode(), sequence=True)
        try:
            await self._coordination.multi([write, notification])
        except MultiFailed as failed:
            if isinstance(failed.cause, NoNode):
                await self._make_paths()
            elif not isinstance(failed.cause, BadVersion):
                raise
            return False
        return True

    async def _stored(self, token_id: str) -> tuple[DelegationToken, int]:
        """The token now and the version of its znode. Raises NoNode, ZnodeError."""
        data, stat = await self._coordination.get(znodes.token_path(token_id))
        return znodes.decode_token(token_id, data), stat.version

    async def _apply_changes(self, changes: Sequence[ChangeNode]) -> None:
        ids = {data.decode(errors="replace"): None for _, data in changes}
        async with self._changing:
            await self._read(list(ids))

    async def _read_all(self) -> None:
        async with self._changing:
            found = await self._coordination.children(znodes.DELEGATION_TOKENS)
            gone = self._tokens.keys() - set(found)
            await self._read(found)
            for token_id in gone:
                self._forget(token_id)

    async def _read(self, ids: Sequence[str]) -> None:
        """Puts these tokens in force as they are stored, some at a time."""
        for start in range(0, len(ids), _READS_AT_ONCE):
            part = ids[start : start + _READS_AT_ONCE]
            read = await asyncio.gather(*map(self._readable, part))
            for token_id, token in zip(part, read, strict=True):
                if token is None:
                    self._forget(token_id)
                else:
                    self._put(token)

    async def _readable(self, token_id: str) -> DelegationToken | None:
        """None for one that is gone, or cannot be read."""
        try:
            return (await self._stored(token_id))[0]
        except NoNode:
            return None
        except ZnodeError as error:
            self._logger.error("%s; nobody logs in by this delegation token until it is corrected", error)
        except ValueError as error:  # a change names what is no znode
            self._logger.error("this change of delegation tokens is ignored: %s", error)
        return None

    def _put(self, token: DelegationToken) -> None:
        token_id = token.token_id
        if token_id not in self._hmacs:
            hmac = self._hmacs[token_id] = self._secret.hmac(token_id)
            self._ids[hmac] = token_id
        self._tokens[token_id] = token

    def _forget(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        self._credentials.pop(token_id, None)
        hmac = self._hmacs.pop(token_id, None)
        if hmac is not None:
            del self._ids[hmac]

    async def _make_paths(self) -> None:
        for path in znodes.TOKEN_PATHS:
            await make_path(self._coordination, path)
