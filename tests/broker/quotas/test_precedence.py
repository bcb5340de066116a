"""Which quota holds for a client, as the eight levels of KIP-55 say."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.quotas.entities import DEFAULT, QuotaEntity
from ottla_broker.quotas.precedence import UNLIMITED, QuotaTable, Tags

USER, CLIENT = "alice", "reports"
IN_ORDER = (
    QuotaEntity(user=USER, client_id=CLIENT),
    QuotaEntity(user=USER, client_id=DEFAULT),
    QuotaEntity(user=USER),
    QuotaEntity(user=DEFAULT, client_id=CLIENT),
    QuotaEntity(user=DEFAULT, client_id=DEFAULT),
    QuotaEntity(user=DEFAULT),
    QuotaEntity(client_id=CLIENT),
    QuotaEntity(client_id=DEFAULT),
)
"""Written here once more, in the order of the javadoc of Apache Kafka's ClientQuotaManager."""


@pytest.mark.parametrize("levels", [one for n in range(9) for one in itertools.combinations(range(8), n)])
def test_the_first_level_with_a_quota_holds(levels: tuple[int, ...]) -> None:
    table = QuotaTable()
    for level in levels:
        table.set(IN_ORDER[level], 100.0 + level)
    assert table.match(USER, CLIENT).bound == (100.0 + levels[0] if levels else UNLIMITED)


@pytest.mark.parametrize(
    ("entity", "tags"),
    [
        (IN_ORDER[0], Tags(USER, CLIENT)),
        (IN_ORDER[1], Tags(USER, CLIENT)),
        (IN_ORDER[2], Tags(USER, "")),
        (IN_ORDER[3], Tags(USER, CLIENT)),
        (IN_ORDER[4], Tags(USER, CLIENT)),
        (IN_ORDER[5], Tags(USER, "")),
        (IN_ORDER[6], Tags("", CLIENT)),
        (IN_ORDER[7], Tags("", CLIENT)),
    ],
)
def test_the_level_says_which_connections_share_a_quota(entity: QuotaEntity, tags: Tags) -> None:
    table = QuotaTable()
    table.set(entity, 1.0)
    assert table.match(USER, CLIENT) == (1.0, tags)


NAMES = st.sampled_from(["alice", "bob"])
PARTS = st.one_of(st.none(), st.just(DEFAULT), NAMES)
ENTITIES = st.builds(QuotaEntity, user=PARTS, client_id=PARTS).filter(lambda one: one.names)


@given(st.dictionaries(ENTITIES, st.floats(1, 100)), NAMES, NAMES)
def test_a_quota_of_another_name_never_holds(quotas: dict[QuotaEntity, float], user: str, client_id: str) -> None:
    table = QuotaTable()
    for entity, bound in quotas.items():
        table.set(entity, bound)
    possible = [
        QuotaEntity(user=level.user and (level.user if level.user is DEFAULT else user),
                    client_id=level.client_id and (level.client_id if level.client_id is DEFAULT else client_id))
        for level in IN_ORDER
    ]  # fmt: skip
    expected = next((quotas[entity] for entity in possible if entity in quotas), UNLIMITED)
    assert table.match(user, client_id).bound == expected


def test_a_client_without_an_id_has_no_quota_of_a_client_id() -> None:
    table = QuotaTable()
    table.set(QuotaEntity(client_id=DEFAULT), 1.0)
    assert table.match(USER, "").bound == UNLIMITED
    table.set(QuotaEntity(user=USER), 2.0)
    table.set(QuotaEntity(user=USER, client_id=DEFAULT), 3.0)
    assert table.match(USER, "") == (2.0, Tags(USER, ""))


def test_a_removed_quota_holds_no_more_and_the_next_level_does() -> None:
    table = QuotaTable()
    table.set(IN_ORDER[0], 1.0)
    table.set(IN_ORDER[7], 2.0)
    table.set(IN_ORDER[0], None)
    assert table.match(USER, CLIENT).bound == 2.0
    table.set(IN_ORDER[7], None)
    assert not table


def test_a_client_that_is_named_like_the_default_entity_is_not_the_default() -> None:
    table = QuotaTable()
    table.set(QuotaEntity(client_id="<default>"), 1.0)
    assert (table.match(USER, "<default>").bound, table.match(USER, "other").bound) == (1.0, UNLIMITED)
