"""Rolls of six brokers in three racks, in batches and with an operator that is killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from e2e.long.fleet import NAME
from e2e.long.load import PARTITIONS
from e2e.long.scenario import FleetScenario, ScenarioStage
from e2e.long.timeline import phases
from e2e.long.watch import RestartedBatch
from e2e.providers.processes import ProcessProvider
from ottla_operator.api.objects import KAFKA_CLUSTER, dig

KEY = "log.retention.hours"
KILLS = 5
ONE_BY_ONE, IN_BATCHES = "one by one", "in batches"
RATIO = "time in batches, to one by one"


def roll_six(stage: ScenarioStage) -> None:
    """One broker at a time, then in batches."""
    one_by_one = _roll(stage, ONE_BY_ONE, {"maxBatch": 1})
    in_batches = _roll(stage, IN_BATCHES, {"maxBatch": None})
    found = stage.found
    found.figures |= {"racks": len(set(stage.fleet.racks().values())), "partitions under load": PARTITIONS}
    found.figures |= {"batches": len(in_batches), "batches of one": len(one_by_one)}
    seconds = {name: sum(found.timelines[name].values()) for name in (ONE_BY_ONE, IN_BATCHES)}
    found.figures |= {f"{name}: first to last batch, seconds": round(took, 1) for name, took in seconds.items()}
    if seconds[ONE_BY_ONE]:
        found.figures[RATIO] = round(seconds[IN_BATCHES] / seconds[ONE_BY_ONE], 3)
    found.expect(len(one_by_one) == 6, f"with maxBatch 1 there were {len(one_by_one)} batches: {one_by_one}")
    found.expect(len(in_batches) == 3, f"six brokers in three racks took {len(in_batches)} batches: {in_batches}")


def operator_killed(stage: ScenarioStage) -> None:
    """SIGKILL at random times through a roll, through a scale-down and through a scale-up with their rebalances."""
    fleet, before = stage.fleet, stage.fleet.uids()
    with stage.window("roll") as batches:
        fleet.configure({KEY: next_value(stage)})
        fleet.until(fleet.roll, "the roll begins")
        stage.found.figures["roll: kills"] = fleet.kill_operator_until(
            lambda: not fleet.roll(), "the roll ends", stage.draw, KILLS
        )
        fleet.until_ready()
    stage.found.figures["roll: batches"] = len(batches)
    expect_restarted(stage, before)
    for brokers in (4, 6):
        stage.say(f"{brokers} brokers, and kills")
        with stage.window(f"to {brokers}"):
            fleet.patch({"brokers": {"replicas": brokers}})
            stage.found.figures[f"to {brokers}: kills"] = fleet.kill_operator_until(
                _rebalanced(stage, brokers), f"{brokers} brokers", stage.draw, KILLS
            )
            fleet.until_ready()
    stage.found.expect(len(fleet.pods()) == 6, f"the brokers are {sorted(fleet.pods())}")


def image_rolled_back(stage: ScenarioStage) -> None:
    """Another image, and after the first batch the one of before: nobody else is restarted, and all run as before."""
    fleet, before = stage.fleet, stage.fleet.uids()
    image = fleet.cluster.images.ottla
    other = ProcessProvider().tag_image(image, f"{image.tag}-next")
    with stage.window("upgrade and back") as batches:
        fleet.patch({"image": other.reference})
        fleet.until(lambda: fleet.roll().get("batchesDone"), "the first batch has the other image")
        stage.say("back")
        fleet.patch({"image": None})
        fleet.until_ready()
    images = {broker: dig(pod, "spec", "containers", 0, "image") for broker, pod in fleet.pods().items()}
    stage.found.expect(set(images.values()) == {image.reference}, f"the brokers run {images}")
    after = fleet.uids()
    stage.found.figures |= {"batches": len(batches), "restarted": sum(after[one] != before[one] for one in before)}


def _roll(stage: ScenarioStage, name: str, rolling: Mapping[str, object]) -> list[RestartedBatch]:
    fleet, before = stage.fleet, stage.fleet.uids()
    stage.say(f"a roll {name}")
    fleet.patch({"rolling": dict(rolling)})
    fleet.until_ready()
    with stage.window(name) as batches, fleet.followed() as changes:
        fleet.configure({KEY: next_value(stage)})
        fleet.until(lambda: fleet.uids() != before, "the first pod is replaced")
        fleet.until_ready()
    stage.found.timelines[name] = phases(changes)
    expect_restarted(stage, before)
    return batches


def expect_restarted(stage: ScenarioStage, before: Mapping[int, str]) -> None:
    """Every broker of `before` has another pod now."""
    after = stage.fleet.uids()
    same = [broker for broker in before if after.get(broker) == before[broker]]
    stage.found.expect(not same, f"brokers {same} were not restarted")


def next_value(stage: ScenarioStage) -> int:
    live = stage.fleet.kubernetes.there(KAFKA_CLUSTER, NAME)
    return int(dig(live, "spec", "brokers", "config", KEY) or 100) + 1


def _rebalanced(stage: ScenarioStage, brokers: int) -> Callable[[], bool]:
    """Whether so many brokers are there, and the rebalance that began for them has ended."""
    has_begun = False

    def holds() -> bool:
        nonlocal has_begun
        rebalance = stage.fleet.status().get("rebalance")
        has_begun = has_begun or rebalance is not None
        return has_begun and rebalance is None and len(stage.fleet.pods()) == brokers

    return holds


ROLL_SIX = FleetScenario(
    "roll-six", "six brokers in three racks, one by one and in batches", roll_six, no_send_fails=True
)
IMAGE_ROLLED_BACK = FleetScenario("image-rolled-back", "another image, and the former in mid-roll", image_rolled_back)
OPERATOR_KILLED = FleetScenario("operator-killed", "SIGKILL through a roll and through rebalances", operator_killed)
