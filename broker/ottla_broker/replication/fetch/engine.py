"""FetchEngine: the entry of every fetch; chooses its context by session id and epoch (KIP-227).

Source: kafka.server.FetchManager.newContext.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.fetch.contexts import (
    FetchContext,
    FullContext,
    IncrementalContext,
    SessionlessContext,
    in_slices,
)
from ottla_broker.replication.fetch.delayed_fetch import DelayedFetch
from ottla_broker.replication.fetch.fetch_values import (
    SLICE,
    FetchEnvironment,
    FetchParams,
    FetchReply,
    FetchResult,
    ForgottenPartitions,
    RequestedTopic,
    Turn,
)
from ottla_broker.replication.fetch.long_fetch import LongFetch
from ottla_broker.replication.fetch.session_cache import FetchSession, FetchSessionCache
from ottla_broker.replication.fetch.session_fetch_state import SessionFetchState
from ottla_broker.replication.leader_session import FINAL_EPOCH, INITIAL_EPOCH


class FetchEngine:
    """Answers fetches of consumers and followers.

    Args:
        environment: the parts of the broker that fetches use.
        slots: max.incremental.fetch.session.cache.slots.
        random_below: gives a random number from 0 to n - 1, for session ids.
        chooses_by_rack: replica.selector.class sends consumers to the replica of their rack (KIP-392).
    """

    def __init__(
        self, environment: FetchEnvironment, slots: int, random_below: Callable[[int], int], *, chooses_by_rack: bool
    ) -> None:
        self.chooses_by_rack = chooses_by_rack
        self.sessions: FetchSessionCache[SessionFetchState] = FetchSessionCache(
            slots, random_below, environment.metrics
        )
        self._environment = environment

    def fetch(
        self,
        params: FetchParams,
        session_id: int,
        session_epoch: int,
        topics: Sequence[RequestedTopic],
        forgotten: Sequence[ForgottenPartitions],
        reply: FetchReply,
    ) -> None:
        """Answers through `reply`, possibly later.

        Args:
            session_id: 0 for none.
            session_epoch: 0 asks for a session, -1 for none, and each closes the one that is named; others continue it.
            topics: what the request names; of an incremental request what it adds or changes.
            forgotten: what an incremental request removes.
        """
        environment = self._environment
        context: FetchContext
        if session_epoch == FINAL_EPOCH:
            if session_id:
                self._close(session_id, params)
            context = SessionlessContext(topics, params, environment)
        elif session_epoch == INITIAL_EPOCH:
            if session_id:
                self._close(session_id, params)
            context = FullContext(topics, params, environment, self.sessions)
        else:
            found = self._continue(params, session_id, session_epoch, topics, forgotten)
            if isinstance(found, ErrorCode):
                reply.answer(FetchResult([], error_code=int(found)))
                return
            if found.has_many:
                reply.go_on_in_turns(LongFetch(found, params, environment, reply).start)
                return
            context = found
        DelayedFetch(context, params, environment, reply).start()

    async def fetch_in_turns(
        self,
        params: FetchParams,
        session_id: int,
        session_epoch: int,
        topics: Sequence[RequestedTopic],
        forgotten: Sequence[ForgottenPartitions],
        reply: FetchReply,
        turn: Turn,
    ) -> None:
        """As `fetch`, for a request that names many partitions, each once. Raises what `turn` raises."""
        environment = self._environment
        context: FetchContext
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id:
                self._close(session_id, params)
            if session_epoch == FINAL_EPOCH:
                context = SessionlessContext(topics, params, environment)
            else:
                context = FullContext(topics, params, environment, self.sessions)
        else:
            found = await self._continue_in_turns(params, session_id, session_epoch, topics, forgotten, turn)
            if isinstance(found, FetchResult):
                reply.answer(found)
                return
            context = found
        await LongFetch(context, params, environment, reply).start(turn)

    def _continue(
        self,
        params: FetchParams,
        session_id: int,
        session_epoch: int,
        topics: Sequence[RequestedTopic],
        forgotten: Sequence[ForgottenPartitions],
    ) -> SessionlessContext | IncrementalContext | ErrorCode:
        """The context of an incremental request. One that leaves no partition closes the session."""
        sessions = self.sessions
        session = sessions.find(session_id, session_epoch, uses_topic_ids=params.capabilities.uses_topic_ids)
        if isinstance(session, ErrorCode):
            return session
        state = session.content
        if not _is_of(state, params):
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # another client's
        state.update(topics, forgotten, params)
        return self._continued(session, params, topics)

    async def _continue_in_turns(
        self,
        params: FetchParams,
        session_id: int,
        session_epoch: int,
        topics: Sequence[RequestedTopic],
        forgotten: Sequence[ForgottenPartitions],
        turn: Turn,
    ) -> FetchContext | FetchResult:
        """As `_continue`. Whoever goes away meanwhile may send the same request again."""
        sessions = self.sessions
        session = sessions.find(session_id, session_epoch, uses_topic_ids=params.capabilities.uses_topic_ids)
        if isinstance(session, ErrorCode):
            return FetchResult([], error_code=int(session))
        state = session.content
        if not _is_of(state, params):
            return FetchResult([], error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        with sessions.taken(session):
            for part in in_slices(topics):
                state.update(part, (), params)
                await turn(SLICE)
            for removed in in_slices(forgotten):
                state.update((), removed, params)
                await turn(SLICE)
        if state.is_closed:
            return state.invalid_epoch()
        return self._continued(session, params, topics)

    def _close(self, session_id: int, params: FetchParams) -> None:
        """Unless it is another client's."""
        session = self.sessions.get(session_id)
        if session is not None and _is_of(session.content, params):
            self.sessions.close(session_id)

    def _continued(
        self, session: FetchSession[SessionFetchState], params: FetchParams, topics: Sequence[RequestedTopic]
    ) -> SessionlessContext | IncrementalContext:
        """The session has what the request changes."""
        state = session.content
        if not state.partitions:
            self.sessions.close(session.session_id)
            return SessionlessContext(topics, params, self._environment)
        now_ms = self._environment.replicas.now_ms()
        self.sessions.advance(session, now_ms)
        state.sweep(now_ms)
        return IncrementalContext(session, params, self._environment, now_ms)


def _is_of(state: SessionFetchState, params: FetchParams) -> bool:
    """Whether a session is that of the client. Apache Kafka tells clients apart by the id alone, which can be guessed:
    the errors of what one may not read would name the topics that another one reads."""
    return state.replica_id == params.replica_id and state.client == params.client
