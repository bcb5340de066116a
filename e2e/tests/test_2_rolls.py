"""Restarts of pods, one at a time and under load: no acknowledged record is lost."""

from __future__ import annotations

import pytest

from e2e.installation import OperatorDeployment
from e2e.kubernetes_api import Kubernetes, Refused, is_ready
from e2e.tests.record_traffic import PROGRAM, ConnectionProbe, RecordTraffic
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, STATEFUL_SET, Obj, annotation, dig, uid_of

BROKERS = (0, 1, 2)


def pod_of(broker: int) -> str:
    return f"orders-broker-{broker}-0"


def uids(kubernetes: Kubernetes) -> dict[int, str]:
    return {broker: uid_of(kubernetes.there(POD, pod_of(broker))) for broker in BROKERS}


def configure(kubernetes: Kubernetes, config: Obj) -> None:
    kubernetes.patch(KAFKA_CLUSTER, "orders", {"spec": {"brokers": {"config": config}}})


def roll(kubernetes: Kubernetes) -> Obj:
    return dict(dig(kubernetes.there(KAFKA_CLUSTER, "orders"), "status", "roll") or {})


def rolled(kubernetes: Kubernetes) -> list[int]:
    """The brokers that the roll under way has restarted."""
    return list(roll(kubernetes).get("done") or [])


def properties(kubernetes: Kubernetes, broker: int) -> str:
    """server.properties as the broker's container sees it."""
    return kubernetes.execute(pod_of(broker), "cat", "/etc/ottla/server.properties")


def controller(kubernetes: Kubernetes, client: str) -> int:
    """The broker id of the active controller in the metadata."""
    return int(kubernetes.execute(client, "python3", PROGRAM, "controller"))


def test_deleted_broker_pods_disturb_no_client_when_they_have_their_grace_period(
    records: RecordTraffic, knocking: ConnectionProbe, kubernetes: Kubernetes, client: str
) -> None:
    """Each in turn, the active controller's last, while a producer with acks=all and a consumer group run. Brokers'
    addresses may refuse a connection and never leave one unanswered."""
    kubernetes.until_ready()
    last = controller(kubernetes, client)
    group = records.follow()
    records.start()
    absences = []
    for broker in sorted(BROKERS, key=lambda broker: broker == last):
        assert controller(kubernetes, client) == last, "others that leave are no reason for another controller"
        pod = kubernetes.there(POD, pod_of(broker))
        node = str(dig(pod, "spec", "nodeName"))
        kubernetes.cordon(node, True)  # its node takes no pods: the new one stands still until the group has gone on
        try:
            kubernetes.delete(POD, pod_of(broker))
            kubernetes.until_replaced(pod_of(broker), uid_of(pod), ready=False)
            absences.append(group.until_more(1000))
        finally:
            kubernetes.cordon(node, False)
        kubernetes.until_replaced(pod_of(broker), uid_of(pod))
        kubernetes.until_ready()
    assert controller(kubernetes, client) != last
    records.until_more(1000)
    said = records.stop()
    assert said["refused"] == [] and said["unknown"] == 0
    knocking.assert_always_answered()
    group.assert_undisturbed(absences)
    records.assert_nothing_is_lost()


def test_killed_pods_lose_no_acknowledged_record(
    records: RecordTraffic, kubernetes: Kubernetes, operator: OperatorDeployment
) -> None:
    """Brokers, ZooKeeper servers and the operator, without a grace period, which leaves a process two seconds. Crashes
    without a warning are in `tests/nemesis` and in the tests of lost nodes."""
    records.start()
    for pod in (*map(pod_of, BROKERS), *(f"orders-zookeeper-{number}-0" for number in (1, 2, 3))):
        before = uid_of(kubernetes.there(POD, pod))
        kubernetes.delete(POD, pod, grace_s=0)
        kubernetes.until_replaced(pod, before)
        kubernetes.until_ready()  # every partition is in sync again: two of three replicas may not be away at once
        records.until_more(400)
    operator.kill()
    operator.until_ready()
    said = records.stop()
    assert said["refused"] == [] and said["unknown"] == 0
    records.assert_nothing_is_lost()
    kubernetes.until_ready()


def test_a_changed_configuration_rolls_under_load_while_the_operator_is_killed(
    records: RecordTraffic, kubernetes: Kubernetes, operator: OperatorDeployment
) -> None:
    records.start()
    before = uids(kubernetes)
    configure(kubernetes, {"log.retention.hours": 72})
    kubernetes.until(lambda: len(rolled(kubernetes)) >= 1, "the first broker is rolled")
    operator.kill()
    kubernetes.until_ready()
    records.until_more(1000)
    said = records.stop()
    assert said["refused"] == [] and said["unknown"] == 0
    found = records.assert_nothing_is_lost()
    assert found["acknowledged"] == said["acknowledged"] > 0
    after = uids(kubernetes)
    assert all(after[broker] != before[broker] for broker in BROKERS)
    for broker in BROKERS:
        pod = kubernetes.there(POD, pod_of(broker))
        assert dig(pod, "status", "containerStatuses", 0, "restartCount") == 0
        assert "log.retention.hours=72\n" in properties(kubernetes, broker)


def test_a_pod_deleted_during_a_roll_keeps_its_template_until_the_roll_reaches_it(
    orders: str, kubernetes: Kubernetes, operator: OperatorDeployment
) -> None:
    kubernetes.until_ready()
    old = annotation(kubernetes.there(POD, pod_of(0)), "kafka.ottla.dev/config")
    configure(kubernetes, {"log.retention.hours": 48})
    kubernetes.until(lambda: len(rolled(kubernetes)) >= 1, "the first broker is rolled")
    operator.scale(0)
    waiting = [
        broker
        for broker in BROKERS
        if "log.retention.hours=72" in _config_of_template(kubernetes, broker) and _is_up(kubernetes, broker)
    ]
    assert waiting, "a broker has not been restarted yet"
    victim = waiting[-1]
    before = uid_of(kubernetes.there(POD, pod_of(victim)))
    kubernetes.until(lambda: all(_is_up(kubernetes, broker) for broker in BROKERS), "every broker is ready")
    kubernetes.kubectl("delete", "pod", pod_of(victim), "--wait=false")  # an eviction is refused during a roll
    kubernetes.until_replaced(pod_of(victim), before)
    assert "log.retention.hours=72\n" in properties(kubernetes, victim)
    operator.scale(1)
    kubernetes.until_ready()
    assert all("log.retention.hours=48\n" in properties(kubernetes, broker) for broker in BROKERS)
    assert old != annotation(kubernetes.there(POD, pod_of(0)), "kafka.ottla.dev/config")


def test_a_second_eviction_is_refused_while_a_pod_is_missing(orders: str, kubernetes: Kubernetes) -> None:
    kubernetes.until_ready()
    node = str(dig(kubernetes.there(POD, pod_of(0)), "spec", "nodeName"))
    before = uid_of(kubernetes.there(POD, pod_of(0)))
    kubernetes.cordon(node, True)
    try:
        kubernetes.until(lambda: _evicted(kubernetes, 0), "the first eviction is allowed")
        kubernetes.until_replaced(pod_of(0), before, ready=False)
        with pytest.raises(Refused) as refused:
            kubernetes.evict(pod_of(1))
        assert refused.value.status == 429
    finally:
        kubernetes.cordon(node, False)
    kubernetes.until_ready()


def test_kubectl_rollout_restart_restarts_the_broker_through_a_roll(orders: str, kubernetes: Kubernetes) -> None:
    before = uids(kubernetes)
    kubernetes.kubectl("rollout", "restart", "statefulset/orders-broker-2")
    kubernetes.until_replaced(pod_of(2), before[2])
    kubernetes.until_ready()
    after = uids(kubernetes)
    assert {broker for broker in BROKERS if after[broker] != before[broker]} == {2}


def test_an_invalid_configuration_is_reported_and_stops_nothing_else(orders: str, kubernetes: Kubernetes) -> None:
    before = uids(kubernetes)
    configure(kubernetes, {"no.such.key": 1})
    condition = kubernetes.until_condition(KAFKA_CLUSTER, orders, "ConfigValid", "InvalidSpec")
    assert "spec.brokers.config.no.such.key" in condition["message"]
    configure(kubernetes, {"no.such.key": None})
    kubernetes.until_ready()
    assert uids(kubernetes) == before


def _evicted(kubernetes: Kubernetes, broker: int) -> bool:
    """Tries an eviction; a budget that has not observed the pods yet refuses it with 429."""
    kubernetes.evict(pod_of(broker))
    return True


def _is_up(kubernetes: Kubernetes, broker: int) -> bool:
    return is_ready(kubernetes.get(POD, pod_of(broker)))


def _config_of_template(kubernetes: Kubernetes, broker: int) -> str:
    """server.properties that a broker's next pod will see."""
    from ottla_operator.api.objects import CONFIG_MAP

    stateful_set = kubernetes.there(STATEFUL_SET, f"orders-broker-{broker}")
    name = annotation(dig(stateful_set, "spec", "template"), "kafka.ottla.dev/config") or ""
    return str(dig(kubernetes.there(CONFIG_MAP, name), "data", "server.properties"))
