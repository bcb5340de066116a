"""What can happen to a KafkaCluster and to what belongs to it."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    KAFKA_CLUSTER,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    ResourceKind,
    label,
)
from ottla_operator.facts.snapshot import ContainerImages
from tests.operator.model_based.fleet_rules import FleetRules
from tests.operator.model_based.long_text import LongText

OWNED = (STATEFUL_SET, POD, SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, SECRET)
ONE_GIB = ("1Gi", "1024Mi", "1073741824", "1073741824.0", "1048576Ki", "1.0Gi")
MORE = ("2Gi", "2e9", "3G")
ODD_SIZES = ("200e7", "2E9", "1500m", "0.5Gi", "+2Gi", "much", "-1Gi", "")
HAND_SIZES = ("2Gi", "2e9", "200e7", "2147483648000m")
BROKER_CONFIGS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"min.insync.replicas": 1},
    {"message.max.bytes": 5000, "log.retention.hours": 5},
    {"message.max.bytes": 6000},
    {"log.retention.hours": 5},
    {"log.retention.hours": "5"},
    {"log.retention.hours": 13},
    {"no.such": 1},
    {"log.retention.hours": 5, "max.connections.per.ip.overrides": LongText("127.0.0.1:5," * 2731 + "127.0.0.1:5")},
    {"log.retention.hours": 6, "authorizer.class.name": LongText("x" * 32_768)},
)
"""The last two are longer than a string of Kafka. With 13 a broker does not start (`World`)."""
LONG = {"metadata": {"annotations": {"long": LongText("x" * (250 << 10))}}}
"""With the operator's own annotations these are more than an object may have."""
SPEC = (
    st.tuples(st.just("spec.brokers.replicas"), st.sampled_from((1, 2, 3)))
    | st.tuples(st.just("spec.brokers.config"), st.sampled_from(BROKER_CONFIGS))
    | st.tuples(st.just("spec.brokers.racks"), st.sampled_from((None, ["zone-a", "zone-b"], ["zone-x"], ["z" * 64])))
    | st.tuples(st.just("spec.brokers.template"), st.sampled_from((None, {"pod": LONG}, {"service": LONG})))
    | st.tuples(st.just("spec.rolling"), st.sampled_from((None, {"maxBatch": 1}, {"leadershipTimeoutSeconds": 1})))
    | st.tuples(st.just("spec.brokers.claimDeletionPolicy"), st.sampled_from((None, "Delete")))
    | st.tuples(st.just("spec.paused"), st.sampled_from((None, True)))
    | st.tuples(st.just("spec.zookeeper.replicas"), st.sampled_from((1, 3)))
)
_D1 = {"name": "d1", "size": "1Gi", "storageClassName": "grows", "onFailure": "Replace"}
POOLS: tuple[list[dict[str, Any]] | None, ...] = (
    None,
    None,
    [{"name": "a", "replicas": 2}],
    [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1}],
    [{"name": "b", "replicas": 1}, {"name": "a", "replicas": 2}],
    [{"name": "main", "replicas": 2}, {"name": "b", "replicas": 1, "config": {"log.retention.hours": 6}}],
    [{"name": "a", "replicas": 1, "idRange": {"first": 5, "last": 7}}, {"name": "b", "replicas": 2}],
    [{"name": "a", "replicas": 0}, {"name": "b", "replicas": 2}],
    [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1, "disks": [{**_D1, "name": "d0"}, _D1]}],
    [{"name": "a", "replicas": 1}, {"name": "a", "replicas": 1}],
    [{"name": "a", "replicas": 1, "disk": []}],
    [{"name": "a", "replicas": 2, "idRange": {"first": 1000, "last": 1001}}],
    [{"name": "a", "replicas": 2, "disks": [{**_D1, "storageClassName": "s" * 254}]}],
)
"""The last four are wrong."""
DYNAMIC_VALUES = (("message.max.bytes", "7000"), ("log.retention.ms", "60000"), ("log.cleaner.threads", "2"))
SIZES = st.sampled_from((*ONE_GIB, *MORE, *ODD_SIZES))


class ClusterRules(FleetRules):
    """Rules only; the world is the machine's."""

    @rule(change=SPEC)
    def change_the_cluster(self, change: tuple[str, Any]) -> None:
        self.world.edit(*change)

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=2), policy=st.sampled_from(("Keep", "Replace")))
    def change_the_disks(self, sizes: list[str], policy: str) -> None:
        disks = [
            {"name": f"d{index}", "size": size, "storageClassName": "grows", "onFailure": policy}
            for index, size in enumerate(sizes)
        ]
        self.world.edit("spec.brokers.disks", disks)

    @rule(pools=st.sampled_from(POOLS), has_replicas=st.sampled_from((False, False, False, True)))
    def change_the_pools(self, pools: list[dict[str, Any]] | None, has_replicas: bool) -> None:
        """Mostly without replicas, which do not go with pools."""
        self.world.edit("spec.brokers.pools", pools)
        if pools is None or not has_replicas:
            self.world.edit("spec.brokers.replicas", 2 if pools is None else None)

    @rule()
    def delete_the_cluster(self) -> None:
        if self.world.cluster is not None:
            self.world.remove(KAFKA_CLUSTER, "orders")

    @rule()
    def apply_the_cluster(self) -> None:
        if self.world.cluster is None:
            self.world.put(copy.deepcopy(self.document))

    @rule(kind=st.sampled_from(OWNED), index=st.integers(0, 9))
    def somebody_deletes_an_object(self, kind: ResourceKind, index: int) -> None:
        if (name := self._pick(kind, index)) is not None:
            self.world.remove(kind, name)

    @rule(index=st.integers(0, 5), with_pod=st.booleans())
    def a_claim_is_lost(self, index: int, with_pod: bool) -> None:
        if (name := self._pick(CLAIM, index)) is None:
            return
        pods = [pod["metadata"]["name"] for pod in self.world.all(POD) if name in str(pod["spec"].get("volumes"))]
        self.world.lost.add(name)
        self.world.remove(CLAIM, name)
        if with_pod:
            for pod in pods:
                self.world.remove(POD, pod)

    @rule()
    def the_loss_of_claims_is_accepted(self) -> None:
        """The overrides accept the loss of the brokers' claims that somebody has deleted."""
        entries: dict[int, list[dict[str, Any]]] = {}
        for name in sorted(self.world.lost):
            _, role, number, disk, generation = name.split("-")
            if role == names.BROKER:
                entry = {"name": disk, "generation": int(generation) + 1, "acceptDataLoss": True}
                mine = entries.setdefault(int(number), [])
                mine[:] = [*(one for one in mine if one["name"] != disk), entry]
        overrides = [{"id": number, "disks": disks} for number, disks in entries.items()]
        self.world.edit("spec.brokers.overrides", overrides or None)

    @rule(broker=st.sampled_from((None, 0, 1)), value=st.sampled_from(DYNAMIC_VALUES))
    def somebody_sets_a_dynamic_value(self, broker: int | None, value: tuple[str, str]) -> None:
        dynamic = self.world.kafka.dynamic
        dynamic[broker] = {**dynamic.get(broker, {}), value[0]: value[1]}

    @rule(index=st.integers(0, 5))
    def a_log_directory_fails(self, index: int) -> None:
        mounted = self.world.mounted_claims()
        if mounted:
            self.world.fail_directory(mounted[index % len(mounted)])

    @rule()
    def log_directories_serve_again(self) -> None:
        self.world.directories_serve_again()

    @rule(index=st.integers(0, 2))
    def a_node_is_gone_for_good(self, index: int) -> None:
        self.world.lose_node(index)

    @rule(index=st.integers(0, 5), size=st.sampled_from(HAND_SIZES))
    def somebody_grows_a_claim(self, index: int, size: str) -> None:
        if (name := self._pick(CLAIM, index)) is not None:
            claim = self.world.kubernetes.there(CLAIM, name)
            claim["spec"]["resources"]["requests"]["storage"] = size
            self.world.was_resized = True
            self.world.put(claim)

    @rule(index=st.integers(0, 5), change=st.sampled_from(("env", "replicas", "image", "label", "restart")))
    def somebody_changes_a_stateful_set(self, index: int, change: str) -> None:
        if (name := self._pick(STATEFUL_SET, index)) is None:
            return
        found = self.world.kubernetes.there(STATEFUL_SET, name)
        template = found["spec"]["template"]
        if change == "env":
            template["spec"]["containers"][0].setdefault("env", []).append({"name": "THEIRS", "value": "1"})
        elif change == "replicas":
            found["spec"]["replicas"] = 0
        elif change == "image":
            template["spec"]["containers"][0]["image"] = "theirs:1"
        elif change == "label":
            found["metadata"]["labels"]["theirs"] = "1"
        elif change == "restart":
            annotations = template["metadata"].setdefault("annotations", {})
            annotations["kubectl.kubernetes.io/restartedAt"] = self.world.now()
        self.world.put(found)

    @rule(index=st.integers(0, 5), change=st.sampled_from(("port", "selector", "label")))
    def somebody_changes_a_service(self, index: int, change: str) -> None:
        if (name := self._pick(SERVICE, index)) is None:
            return
        found = self.world.kubernetes.there(SERVICE, name)
        if change == "port":
            found["spec"]["ports"].append({"name": "theirs", "port": 1, "protocol": "TCP"})
        elif change == "selector":
            found["spec"]["selector"] = {"theirs": "1", **found["spec"]["selector"], names.CLUSTER: "theirs"}
        elif change == "label":
            found["metadata"]["labels"]["theirs"] = "1"
        self.world.put(found)

    @rule()
    def somebody_removes_the_clusters_status(self) -> None:
        if (document := self.world.cluster) is not None:
            self.world.put({key: value for key, value in document.items() if key != "status"})

    @rule()
    def controllers_stand_still(self) -> None:
        self.world.controllers_run = False

    @rule(
        broker=st.sampled_from(("ottla:1", "ottla:2")), zookeeper=st.sampled_from(("zookeeper:3.9", "zookeeper:3.9.4"))
    )
    def the_operator_is_upgraded(self, broker: str, zookeeper: str) -> None:
        self.world.images = ContainerImages(broker, zookeeper)
        self.world.restart_operator()

    def _pick(self, kind: ResourceKind, index: int) -> str | None:
        """One of the cluster's objects of a kind."""
        mine = [obj["metadata"]["name"] for obj in self.world.all(kind) if label(obj, names.CLUSTER) == "orders"]
        if kind is SECRET:
            mine = self.world.kubernetes.names(kind)
        return mine[index % len(mine)] if mine else None
