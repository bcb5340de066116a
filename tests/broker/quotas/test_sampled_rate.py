"""The measure of client quotas, beside a model of Apache Kafka's Rate and SampledStat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.quotas.sampled_rate import SampledRate
from ottla_broker.quotas.token_bucket import TokenBucket

SAMPLES, SAMPLE_S = 11, 1.0
EIGHTHS = st.integers(0, 32).map(lambda eighths: eighths * 125)
STEPS = st.lists(st.tuples(EIGHTHS, st.integers(0, 10_000)), min_size=1, max_size=60)
"""(milliseconds since the step before, amount). Eighths of a second are exact in binary."""


class RateOfKafka:
    """Every sample is a row; whole milliseconds, as in Apache Kafka."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []

    def record(self, amount: int, now_ms: int) -> None:
        if not self.rows or now_ms - self.rows[-1][0] >= 1000:
            self.rows.append((now_ms, now_ms, 0))
        start, _, total = self.rows.pop()
        self.rows.append((start, now_ms, total + amount))

    def measure(self, now_ms: int) -> float:
        kept = [row for row in self.rows if now_ms - row[1] < SAMPLES * 1000]
        elapsed_ms = now_ms - min((row[0] for row in kept), default=now_ms)
        elapsed_ms += max(0, SAMPLES - 1 - elapsed_ms // 1000) * 1000
        return sum(row[2] for row in kept) / (elapsed_ms / 1000)


@given(STEPS)
def test_a_rate_is_that_of_apache_kafka(steps: list[tuple[int, int]]) -> None:
    rate, model, now_ms = SampledRate(SAMPLES, SAMPLE_S), RateOfKafka(), 1000
    for step_ms, amount in steps:
        now_ms += step_ms
        rate.record(amount, now_ms / 1000)
        model.record(amount, now_ms)
        assert rate.measure(now_ms / 1000) == pytest.approx(model.measure(now_ms))


@given(st.integers(100, 5000), st.lists(st.tuples(st.integers(0, 200), st.floats(0, 0.1)), min_size=1, max_size=400))
def test_a_client_that_waits_as_told_keeps_its_quota(bound: int, requests: list[tuple[int, float]]) -> None:
    """Beyond what may come at once after silence. A request is at most what the quota allows in a tenth of a second:
    larger ones are throttled until their sample is forgotten, and no longer, which Apache Kafka's measure cannot help.
    """
    rate, now, passed = SampledRate(SAMPLES, SAMPLE_S), 0.0, 0.0
    for step_ms, share in requests:
        now += step_ms / 1000
        rate.record(share * bound, now)
        passed += share * bound
        now += rate.throttle_s(bound, now)
        assert passed <= bound * (now + SAMPLES * SAMPLE_S + 0.1)


@given(STEPS)
def test_what_is_taken_back_never_passed(steps: list[tuple[int, int]]) -> None:
    rate, other, now = SampledRate(SAMPLES, SAMPLE_S), SampledRate(SAMPLES, SAMPLE_S), 0.0
    for step_ms, amount in steps:
        now += step_ms / 1000
        rate.record(amount, now)
        other.record(amount, now)
        other.record(500, now)
        other.record(-500, now)
        assert other.measure(now) == pytest.approx(rate.measure(now))


@pytest.mark.parametrize(("bound", "throttle_s"), [(0.0, float("inf")), (-1.0, 0.0)])
def test_a_quota_of_nothing_is_taken_as_the_arithmetic_of_apache_kafka_takes_it(
    bound: float, throttle_s: float
) -> None:
    rate = SampledRate(SAMPLES, SAMPLE_S)
    rate.record(1000, 5.0)
    assert rate.throttle_s(bound, 5.0) == throttle_s


@given(STEPS, st.floats(0.1, 100))
def test_tokens_are_never_more_than_the_burst_and_come_back_at_the_rate(
    steps: list[tuple[int, int]], rate: float
) -> None:
    bucket, now = TokenBucket(SAMPLES * SAMPLE_S), 0.0
    for step_ms, amount in steps:
        now += step_ms / 1000
        before = bucket.tokens(rate, now)
        assert before <= rate * SAMPLES * SAMPLE_S
        bucket.take(amount, rate, now)
        assert bucket.tokens(rate, now) == pytest.approx(before - amount)
        throttle_s = bucket.throttle_s(rate, now)
        assert bucket.tokens(rate, now + throttle_s) >= -1e-6
        now += throttle_s


def test_a_bucket_that_never_refills_throttles_for_ever() -> None:
    bucket = TokenBucket(11.0)
    bucket.take(1, 0.0, 0.0)
    assert bucket.throttle_s(0.0, 100.0) == float("inf")
