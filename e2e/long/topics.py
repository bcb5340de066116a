"""Many KafkaTopics that are applied while brokers restart."""

from __future__ import annotations

import time
from typing import Final

import yaml

from e2e.kubernetes_api import condition_of
from e2e.long.fleet import NAME, Size
from e2e.long.rolls import KEY, next_value
from e2e.long.scenario import FleetScenario, ScenarioStage
from ottla_operator.api.objects import KAFKA_TOPIC

TOPICS: Final = 300
PREFIX: Final = "rolled-"


def topics_in_a_roll(stage: ScenarioStage) -> None:
    """300 KafkaTopics with one `kubectl apply`, when the first broker of a roll is down; they are deleted again."""
    fleet, figures = stage.fleet, stage.found.figures
    documents = yaml.safe_dump_all([_topic(number) for number in range(TOPICS)])
    before = fleet.uids()
    with stage.window("roll") as batches:
        fleet.configure({KEY: next_value(stage)})
        fleet.until(lambda: fleet.uids() != before, "the first pod is replaced")
        began = time.monotonic()
        fleet.kubernetes.kubectl("apply", "--server-side", "-f", "-", text=documents, timeout_s=600)
        applied = time.monotonic()
        stage.say(f"{TOPICS} topics are applied")
        fleet.until(lambda: _ready(stage) == TOPICS, f"{TOPICS} topics are Ready")
        figures["topics: applied in seconds"] = round(applied - began, 1)
        figures["topics: Ready, seconds after they were applied"] = round(time.monotonic() - applied, 1)
        figures["topics: the roll was under way when they were Ready"] = int(bool(fleet.roll()))
        fleet.until_ready()
    figures["roll: batches"] = len(batches)
    stage.say("the topics are deleted")
    names = [f"{PREFIX}{number}" for number in range(TOPICS)]
    fleet.kubernetes.kubectl("delete", KAFKA_TOPIC.plural, "--wait=false", *names, timeout_s=600)
    fleet.until(
        lambda: not any(_is_ours(one["metadata"]["name"]) for one in fleet.kubernetes.list(KAFKA_TOPIC)), "gone"
    )


def _topic(number: int) -> dict[str, object]:
    return {
        "apiVersion": KAFKA_TOPIC.api_version,
        "kind": KAFKA_TOPIC.kind,
        "metadata": {"name": f"{PREFIX}{number}", "namespace": "default"},
        "spec": {"clusterRef": {"name": NAME}, "partitions": 3, "replicas": 3},
    }


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def _ready(stage: ScenarioStage) -> int:
    topics = [one for one in stage.fleet.kubernetes.list(KAFKA_TOPIC) if _is_ours(one["metadata"]["name"])]
    return sum(condition_of(one, "Ready").get("status") == "True" for one in topics)


TOPICS_IN_A_ROLL = FleetScenario(
    "topics-in-a-roll", f"{TOPICS} KafkaTopics while three brokers restart", topics_in_a_roll, Size(3, 3)
)
