"""When a broker logs in again, and which keytab a JAAS line names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.kerberos_settings import Keytab, KeytabError, Renewal, keytab_of

GOOD = {"useKeyTab": "true", "storeKey": "true", "keyTab": "/k", "principal": "kafka/b@EXAMPLE"}


@pytest.mark.parametrize(
    ("renewal", "lifetime_s", "drawn", "wait_s"),
    [
        (Renewal(0.8, 0.05, 60), 86400, 0, 69120),
        (Renewal(0.8, 0.05, 60), 86400, 0.5, 71280),
        (Renewal(0.5, 0, 60), 100, 0, 60),
        (Renewal(0.8, 0, 60), 60, 0, 48),
        (Renewal(0.8, 0, 60), 10, 0, 8),
        (Renewal(2, 0, 60), 1000, 0, 1000),
    ],
)
def test_a_ticket_is_used_for_a_part_of_its_life(
    renewal: Renewal, lifetime_s: float, drawn: float, wait_s: float
) -> None:
    assert renewal.wait_s(lifetime_s, drawn) == pytest.approx(wait_s)


@given(st.builds(Renewal, st.floats(0, 3), st.floats(0, 1), st.floats(0, 1e6)), st.floats(0, 1e6), st.floats(0, 0.999))
def test_a_ticket_is_never_used_behind_its_end(renewal: Renewal, lifetime_s: float, drawn: float) -> None:
    assert 0 <= renewal.wait_s(lifetime_s, drawn) <= lifetime_s


def test_a_line_names_a_principal_and_the_file_of_its_keys() -> None:
    assert keytab_of("key", GOOD) == Keytab("key", "kafka/b@EXAMPLE", "/k")


@pytest.mark.parametrize(
    ("without", "more", "reason"),
    [
        ("useKeyTab", {}, "useKeyTab=true is needed"),
        ("", {"useKeyTab": "false"}, "useKeyTab=true is needed"),
        ("", {"useTicketCache": "TRUE"}, "useTicketCache is not served"),
        ("keyTab", {}, "it has no keyTab"),
        ("principal", {}, "it has no principal"),
        ("", {"principal": "*"}, "it has no principal"),
    ],
)
def test_a_line_without_a_keytab_is_refused(without: str, more: dict[str, str], reason: str) -> None:
    options = {name: value for name, value in GOOD.items() if name != without}
    with pytest.raises(ValueError, match=reason):
        keytab_of("key", {**options, **more})


def test_a_keytab_that_cannot_be_used_is_named() -> None:
    assert str(KeytabError("key", "why", "/k")) == "key: /k: why"
    assert str(KeytabError("key", "why")) == "key: why"
