"""The table of authentication: complete, and without a way to a handler for a client that has no principal."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, Failed
from ottla_broker.server.edge.authentication import (
    REFUSED,
    TABLE,
    AuthenticateReceived,
    Authentication,
    AuthenticationEffect,
    AuthenticationEvent,
    AuthenticationState,
    DelayOver,
    HandshakeReceived,
    LimitReached,
    MechanismAnswered,
    OtherReceived,
    SessionEnded,
    TokenReceived,
    UnknownEvent,
    VersionsAnswered,
    VersionsReceived,
    decide,
)

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
EVENTS = get_args(AuthenticationEvent)
SERVE, ADMIT, CLOSE = AuthenticationEffect.SERVE, AuthenticationEffect.ADMIT, AuthenticationEffect.CLOSE

events = st.one_of(
    st.sampled_from([VersionsReceived(), AuthenticateReceived(), TokenReceived(), OtherReceived()]),
    st.sampled_from([SessionEnded(), LimitReached(), DelayOver()]),
    st.builds(VersionsAnswered, st.booleans()),
    st.builds(
        HandshakeReceived,
        st.sampled_from([0, 1]),
        st.sampled_from(["PLAIN", "SCRAM-SHA-256"]),
        st.booleans(),
        st.floats(0, 10),
    ),
    st.builds(
        MechanismAnswered,
        st.sampled_from([Challenge(b""), Authenticated(ALICE), Authenticated(BOB), Failed(), Failed("no")]),
        st.sampled_from([None, 0, 1000]),
    ),
)


@pytest.mark.parametrize(("state", "event"), [*itertools.product(AuthenticationState, EVENTS)])
def test_every_state_has_a_row_for_every_event_or_a_reason_why_not(
    state: AuthenticationState, event: type[Any]
) -> None:
    assert (state, event) in TABLE or event in REFUSED


def test_what_has_no_row_is_the_mistake_of_the_caller() -> None:
    with pytest.raises(UnknownEvent):
        decide(Authentication(), DelayOver())


@given(st.lists(events, max_size=30))
def test_no_sequence_of_events_leads_to_a_handler_without_a_principal(sequence: list[AuthenticationEvent]) -> None:
    """Nor to another principal than the first, nor on from the end."""
    now, was_content, is_over = Authentication(), None, False
    for event in sequence:
        if (now.state, type(event)) not in TABLE:
            continue
        before = now
        decision = decide(now, event)
        now = decision.authentication
        if isinstance(event, MechanismAnswered) and isinstance(event.step, Authenticated):
            was_content = was_content or event.step.principal
        if SERVE in decision.effects:
            assert before.state is AuthenticationState.AUTHENTICATED, "only what is authenticated is served"
            assert now.principal is not None
        if ADMIT in decision.effects:
            assert now.principal == was_content
        if now.principal is not None:
            assert now.principal == was_content
        if is_over:
            assert not set(decision.effects) - {CLOSE}
        is_over = now.state in (AuthenticationState.REFUSED, AuthenticationState.CLOSED)
    if now.state is AuthenticationState.AUTHENTICATED:
        assert was_content is not None


@given(st.lists(events, max_size=30))
def test_whatever_is_refused_says_why_and_has_an_error_that_clients_know(sequence: list[AuthenticationEvent]) -> None:
    now = Authentication()
    for event in sequence:
        if (now.state, type(event)) in TABLE:
            decision = decide(now, event)
            if AuthenticationEffect.CLOSE_LATER in decision.effects:
                assert decision.reason
            if decision.error is not ErrorCode.NONE:
                assert AuthenticationEffect.CLOSE_LATER in decision.effects
            now = decision.authentication
