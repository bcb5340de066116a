"""Events: Normal for what goes on, Warning for what stands in the way and lasts."""

from __future__ import annotations

from ottla_operator.api.objects import EVENT, POD
from ottla_operator.facts.progress import PATIENCE_S
from tests.operator.fleet import CLUSTER, Fleet


class _Events:
    """The Events since it was made, as (type, reason, message)."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known = set(fleet.kubernetes.names(EVENT))

    def all(self) -> list[tuple[str, str, str]]:
        new = [name for name in fleet_events(self._fleet) if name not in self._known]
        found = (self._fleet.kubernetes.there(EVENT, name) for name in new)
        return [(event["type"], event["reason"], event["message"]) for event in found]

    def warnings(self) -> list[tuple[str, str]]:
        return [(reason, message) for kind, reason, message in self.all() if kind == "Warning"]


def fleet_events(fleet: Fleet) -> list[str]:
    """In the order in which they were written."""
    return [name for verb, kind, name in fleet.kubernetes.writes if (verb, kind) == ("create", "Event")]


async def _running() -> Fleet:
    fleet = Fleet(CLUSTER)
    fleet.kafka.partitions = [("t", 0, (0, 1, 2)), ("t", 1, (1, 2, 0))]
    await fleet.converge()
    return fleet


async def test_an_ordinary_roll_has_normal_events_for_each_restart_and_no_warning() -> None:
    fleet = await _running()
    events = _Events(fleet)
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    fleet.kafka.behind = set()
    await fleet.converge()
    assert events.warnings() == []
    assert [(reason, message) for _, reason, message in events.all()][:-1] == [
        ("Rolling", "Rolled: PickNext (ConfigChanged)"),
        ("Restarting", "broker 1: ConfigChanged"),
        ("Restarted", "broker 1 is restarted and in sync"),
        ("Restarting", "broker 2: ConfigChanged"),
        ("Restarted", "broker 2 is restarted and in sync"),
        ("Restarting", "broker 0: ConfigChanged"),
        ("Restarted", "broker 0 is restarted and in sync"),
    ]
    assert events.all()[-1] == ("Normal", "Rolled", "Rolled: AsDeclared")


async def test_a_roll_is_a_warning_only_when_it_waits_for_long() -> None:
    fleet = await _running()
    events = _Events(fleet)
    fleet.kafka.behind = {2}
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    for second in range(0, int(PATIENCE_S), 20):
        fleet.environment.passed_s = second
        await fleet.step()
    assert events.warnings() == []
    fleet.environment.passed_s = int(PATIENCE_S)
    for _ in range(3):
        await fleet.step()
    assert events.warnings() == [
        (
            "Blocked",
            "Rolled: PickNext; waits for: t-0: replica 2 is not in sync; t-1: replica 2 is not in sync",
        )
    ]


async def test_a_new_cluster_that_starts_causes_no_warning() -> None:
    fleet = Fleet(CLUSTER)
    events = _Events(fleet)
    await fleet.converge()
    assert events.warnings() == []


async def test_refused_changes_are_warnings_at_once_and_failing_brokers_when_that_lasts() -> None:
    fleet = await _running()
    events = _Events(fleet)
    fleet.edit("spec.brokers.config", {"no.such": 1})
    await fleet.converge()
    assert {reason for reason, _ in events.warnings()} == {"InvalidSpec", "ConfigInvalidSpec"}
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 2})
    await fleet.converge()
    for lasts in (False, True):
        events = _Events(fleet)
        fleet.kubernetes.remove(POD, "orders-broker-2-0")
        await fleet.task.reconcile_once()
        fleet.environment.passed_s += 59
        await fleet.task.reconcile_once()
        if not lasts:
            await fleet.converge()
        for _ in range(3):
            fleet.environment.passed_s += 1
            await fleet.task.reconcile_once()
        expected = ["BrokersWaitingForBrokers", "WaitingForBrokers"] if lasts else []
        assert sorted(reason for reason, _ in events.warnings()) == expected, "each once"


async def test_a_warning_at_rest_is_reported_once_and_a_new_operator_does_not_report_it_again() -> None:
    fleet = await _running()
    fleet.kubernetes.remove(POD, "orders-broker-2-0")
    fleet.kubernetes.refuses_pods = "exceeded quota"
    await fleet.converge()
    events = _Events(fleet)
    for _ in range(5):
        fleet.environment.passed_s += 30
        await fleet.step()
    assert [reason for reason, _ in events.warnings()].count("WaitingForBrokers") == 1
    fleet.restart_operator()
    fleet.kubernetes.writes.clear()
    for _ in range(5):
        fleet.environment.passed_s += 30
        await fleet.step()
    assert fleet.kubernetes.writes == []
