"""What clients are throttled for: bytes, the time of requests, and partitions that the controller changes."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.quotas.client_quotas import ClientQuota
from ottla_broker.quotas.entities import DEFAULT, QuotaEntity
from ottla_broker.quotas.mutation_quotas import MutationCharge, MutationQuota
from ottla_broker.quotas.shares import INACTIVE_S, MAX_LOOKUPS

ALICE = "alice"


def quota(**bounds: float) -> ClientQuota:
    """By client id."""
    found = ClientQuota(11, 1.0)
    for client_id, bound in bounds.items():
        found.shares.set_bound(QuotaEntity(client_id=client_id), bound)
    return found


def test_connections_of_one_client_id_share_its_quota_and_others_have_their_own() -> None:
    found = quota(a=100.0)
    found.shares.set_bound(QuotaEntity(client_id=DEFAULT), 50.0)
    assert [found.record(user, "a", 1000, 0.0) for user in (ALICE, "bob")] == [0, 10_000]
    assert [found.record(ALICE, client_id, 500, 0.0) for client_id in ("b", "c", "b")] == [0, 0, 10_000]


def test_a_new_bound_is_in_force_at_once_and_what_was_used_still_counts() -> None:
    found = quota(a=100.0)
    assert found.record(ALICE, "a", 2000, 0.0) == 10_000
    found.shares.set_bound(QuotaEntity(client_id="a"), 400.0)
    assert found.record(ALICE, "a", 2000, 0.0) == 0
    found.shares.set_bound(QuotaEntity(client_id="a"), 100.0)
    assert found.record(ALICE, "a", 0, 0.0) == 30_000
    found.shares.set_bound(QuotaEntity(client_id="a"), None)
    assert not found.shares.is_enabled and found.record(ALICE, "a", 10**9, 0.0) == 0


def test_request_time_is_throttled_for_one_sample_at_most() -> None:
    found = ClientQuota(11, 1.0, longest_throttle_s=1.0)
    found.shares.set_bound(QuotaEntity(user=ALICE), 10.0)
    assert found.record(ALICE, "a", 100.0, 0.0) == 0
    assert found.record(ALICE, "b", 900.0, 0.0) == 1000


def test_a_throttle_time_fits_what_a_response_can_say() -> None:
    assert quota(a=1e-9).record(ALICE, "a", 10**12, 0.0) == 2**31 - 1


def test_a_byte_rate_of_0_throttles_nothing_and_a_percentage_of_0_everything() -> None:
    """So does Apache Kafka: the one throttle time is longer than its type, the other is cut to one sample."""
    assert quota(a=0.0).record(ALICE, "a", 1000, 0.0) == 0
    found = ClientQuota(11, 1.0, longest_throttle_s=1.0)
    found.shares.set_bound(QuotaEntity(client_id="a"), 0.0)
    assert found.record(ALICE, "a", 0.001, 0.0) == 1000


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), -1.0])
def test_a_percentage_or_rate_that_cannot_be_exceeded_throttles_nothing(bound: float) -> None:
    """AlterClientQuotas takes them, here and in Apache Kafka."""
    found = ClientQuota(11, 1.0, longest_throttle_s=1.0)
    found.shares.set_bound(QuotaEntity(client_id="a"), bound)
    assert found.record(ALICE, "a", 10.0**9, 0.0) == 0
    if bound < 0:
        return  # tokens that never come back: the next test's
    mutations = Mutations()
    mutations.quota.shares.set_bound(QuotaEntity(user=ALICE), bound)
    for _ in range(2):
        mutations.now += 1.0
        mutations.request(is_strict=True).record(1000)


def test_a_quota_of_no_changes_refuses_every_change_after_the_first() -> None:
    mutations = Mutations()
    mutations.quota.shares.set_bound(QuotaEntity(user=ALICE), 0.0)
    mutations.request(is_strict=True).record(1)
    refused = mutations.request(is_strict=True)
    with pytest.raises(KafkaError):
        refused.record(1)
    assert refused.throttle_ms() == 0, "a connection that is not read for ever would tell its client nothing"


def test_an_inactive_client_is_forgotten_with_its_metrics() -> None:
    found = quota(a=100.0)
    seen: list[tuple[str, str]] = []
    found.shares.on_added = lambda share: seen.append(("added", share.tags.client_id))
    found.shares.on_removed = lambda share: seen.append(("removed", share.tags.client_id))
    found.record(ALICE, "a", 1, 0.0)
    found.record(ALICE, "b", 1, 10.0)
    found.shares.forget_inactive(INACTIVE_S)
    assert seen == [("added", "a"), ("added", "b"), ("removed", "a")]
    found.record(ALICE, "a", 1, INACTIVE_S)
    assert seen[3:] == [("added", "a")]


def test_any_number_of_client_ids_shares_the_quota_of_their_user() -> None:
    found = ClientQuota(11, 1.0)
    found.shares.set_bound(QuotaEntity(user=ALICE), 1000.0)
    for number in range(3 * MAX_LOOKUPS):
        found.record(ALICE, f"client {number}", 1, 0.0)
    assert len(found.shares._by_client) <= MAX_LOOKUPS
    assert found.record(ALICE, "another", 0, 0.0) == 20_000


def test_the_throttle_metric_is_the_average_of_throttles_above_0() -> None:
    found = quota(a=100.0)
    for throttle_ms in (100, 300):
        found.add_throttle(ALICE, "a", throttle_ms, 5.0)
    share = found.shares.of(ALICE, "a", 5.0)
    assert (share.average_throttle_ms(5.0), share.average_throttle_ms(30.0)) == (200.0, 0.0)


class Mutations:
    """A quota of 5 partitions per second: a burst of 55."""

    def __init__(self) -> None:
        self.now = 100.0
        self.quota = MutationQuota(11, 1.0)
        self.quota.shares.set_bound(QuotaEntity(user=ALICE), 5.0)

    def request(self, *, is_strict: bool) -> MutationCharge:
        return self.quota.of_request(ALICE, "a", is_strict=is_strict, monotonic=lambda: self.now)


def test_a_strict_request_is_refused_while_the_quota_is_used_up_and_not_before() -> None:
    mutations = Mutations()
    first = mutations.request(is_strict=True)
    first.record(60)
    assert first.throttle_ms() == 0, "what was left was enough to begin with"
    second = mutations.request(is_strict=True)
    with pytest.raises(KafkaError) as refused:
        second.record(1)
    assert (refused.value.code, second.throttle_ms()) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1000)
    mutations.now += 0.25
    assert second.throttle_ms() == 750, "the client has waited since"
    mutations.now += 0.75
    mutations.request(is_strict=True).record(1)


def test_a_refused_change_is_not_counted() -> None:
    mutations = Mutations()
    mutations.request(is_strict=True).record(60)
    for _ in range(3):
        with pytest.raises(KafkaError):
            mutations.request(is_strict=True).record(50)
    mutations.now += 1.0
    mutations.request(is_strict=True).record(1)


def test_a_permissive_request_is_done_and_throttled() -> None:
    mutations = Mutations()
    request = mutations.request(is_strict=False)
    request.record(60)
    request.record(5)
    assert request.throttle_ms() == 2000
    assert mutations.request(is_strict=False).throttle_ms() == 0, "it has changed nothing yet"
