"""A KafkaCluster below which others change what the operator stands on: scale, owners, definitions and rights."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st
from hypothesis.stateful import rule

from ottla_operator.api.objects import EVENT, KAFKA_CLUSTER, STATEFUL_SET, Obj, dig, is_terminating, name_of
from ottla_operator.api.rights import NEEDED_RIGHTS
from ottla_operator.runtime.prerequisites import READ_EVERY_S
from tests.operator.definitions import make_older
from tests.operator.model_based.clusters import ClusterMachine
from tests.operator.model_based.machine import FAULTS, KINDS
from tests.operator.model_based.world import UNSEEN_S
from tests.operator.orphaning import ownerless, strip_owners
from tests.operator.unreliable_api import Action, Fault

RIGHTS = NEEDED_RIGHTS[KAFKA_CLUSTER.kind]
LACKING = (
    ("spec.rolling",),
    ("status.roll",),
    ("spec.brokers.config", "status.conditions[].observedGeneration"),
    ("spec.brokers.racks", "spec.paused", "status.images"),
)
NOTICED_S = READ_EVERY_S + UNSEEN_S
"""How long the operator may not know that a definition is older: a reconciliation is under way, its calls are slow."""


class GroundMachine(ClusterMachine):
    """As a cluster, with moves of those who own the ground."""

    def __init__(self) -> None:
        self.older_since: float | None = None
        super().__init__()
        make_older(self.world.kubernetes, KAFKA_CLUSTER)
        recorded = self.world.kubernetes._record

        def record(verb: str, obj: Obj) -> None:
            recorded(verb, obj)
            self._is_written(verb, obj)

        self.world.kubernetes._record = record  # type: ignore[method-assign]

    def _is_written(self, verb: str, obj: Obj) -> None:
        """Nothing but status and Events, once the operator must have seen that its definition is older."""
        if self.older_since is None or self.world.loop.time() - self.older_since < NOTICED_S:
            return
        if verb != "status" and obj["kind"] != EVENT.kind:
            self.world.violations.append(f"{verb} {obj['kind']} {name_of(obj)} below an older definition")

    @rule(
        action=st.sampled_from(FAULTS),
        skip=st.integers(0, 6),
        times=st.sampled_from((1, 3, 30)),
        status=st.sampled_from((500, 409, 422, 429)),
        kind=st.sampled_from(("", *(kind.kind for kind in KINDS))),
    )
    def the_api_server_fails(self, action: Action, skip: int, times: int, status: int, kind: str) -> None:
        """Without 403 at random: a definition that may not be read is one that tells nothing."""
        self.world.faults.add(Fault(action, skip, times, kind, status))

    @rule(index=st.integers(0, 5), replicas=st.sampled_from((0, 2, 3)), seconds=st.sampled_from((0.0, 5.0)))
    def somebody_scales_a_stateful_set(self, index: int, replicas: int, seconds: float) -> None:
        if (name := self._pick(STATEFUL_SET, index)) is not None:
            found = self.world.kubernetes.there(STATEFUL_SET, name)
            found["spec"]["replicas"] = replicas
            self.world.put(found)
            self.world.advance(seconds)

    @rule(before_s=st.sampled_from((0.0, 0.5, 30.0)), between_s=st.sampled_from((0.0, 0.5, 30.0)), again=st.booleans())
    def the_cluster_is_deleted_and_leaves_its_objects(self, before_s: float, between_s: float, again: bool) -> None:
        """As `kubectl delete --cascade=orphan` does it: the deletion, the owners, the document."""
        document = self.world.cluster
        if document is None or is_terminating(document):
            return
        dying = {**document["metadata"], "deletionTimestamp": self.world.now(), "finalizers": ["orphan"]}
        self.world.put({**document, "metadata": dying})
        self.world.advance(before_s)
        strip_owners(self.world.kubernetes, document)
        self.world.advance(between_s)
        left = {key: value for key, value in dying.items() if key != "finalizers"}
        self.world.put({**document, "metadata": left})
        if again:
            metadata = {"name": name_of(document), "namespace": "default"}
            applied = {key: value for key, value in document.items() if key != "status"}
            self.world.put({**applied, "metadata": metadata})

    @rule(lacking=st.sampled_from(LACKING))
    def somebody_applies_an_older_definition(self, lacking: tuple[str, ...]) -> None:
        make_older(self.world.kubernetes, KAFKA_CLUSTER, *lacking)
        self.older_since = self.world.loop.time()

    @rule()
    def somebody_applies_the_definition_of_the_release(self) -> None:
        make_older(self.world.kubernetes, KAFKA_CLUSTER)
        self.older_since = None

    @rule(index=st.integers(0, len(RIGHTS) - 1), count=st.sampled_from((1, 5, len(RIGHTS))))
    def rights_are_taken_away(self, index: int, count: int) -> None:
        """One, those of a kind or so, or all: a scope that was made narrower."""
        self.world.kubernetes.lacks["default"] = set((RIGHTS[index:] + RIGHTS[:index])[:count])

    @rule()
    def rights_are_given_back(self) -> None:
        self.world.kubernetes.lacks.clear()

    def at_rest(self) -> None:
        self.rights_are_given_back()
        self.somebody_applies_the_definition_of_the_release()
        super().at_rest()

    def violations(self) -> Iterator[str]:
        document = self.world.cluster
        if document is None:
            return  # what is left has no owner
        yield from super().violations()
        if dig(document, "spec", "paused"):
            return
        for found in self.world.all(STATEFUL_SET):
            if dig(found, "spec", "replicas") not in (0, 1):
                yield f"StatefulSet {name_of(found)} has {dig(found, 'spec', 'replicas')} replicas at rest"
        if orphans := [one for one in ownerless(self.world.kubernetes, document) if one.startswith("StatefulSet/")]:
            yield f"nobody owns {', '.join(orphans)}"
