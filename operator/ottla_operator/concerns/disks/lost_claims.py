"""Claims of brokers that are gone, or whose volume is: the broker does not start until there is another one.

A claim that was deleted is known from the broker's StatefulSet or from its other claims. The operator creates none in
its place by itself, since an empty volume could be taken for the data. With
spec.brokers.overrides[].disks[].acceptDataLoss for each of them the broker gets empty volumes of the next generation,
as after the loss of a node (`last_copies`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla_documents.disk_spec import HIGHEST_GENERATION
from ottla_operator.api import names
from ottla_operator.api.objects import POD, has_condition
from ottla_operator.facts.broker_claims import generation_of, live_claim, read_claim, recorded_name
from ottla_operator.facts.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LostClaim:
    """A claim without a volume. `what`: for a condition."""

    name: str
    disk: str
    generation: int
    what: str


def lost_claims(snapshot: Snapshot, broker_id: int) -> list[LostClaim]:
    """The lost claims of a broker; none while its pod is ready: it has the volumes until it stops."""
    pod = snapshot.get(POD, names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
    if pod is not None and has_condition(pod, "Ready"):
        return []
    found = []
    for disk in snapshot.disks_of(broker_id):
        live = live_claim(snapshot, broker_id, disk.name)
        if live is not None:
            if read_claim(live, disk.name).state == "Lost":
                claim = read_claim(live, disk.name)
                what = f"claim {claim.name} of broker {broker_id} has lost its volume"
                found.append(LostClaim(claim.name, disk.name, generation_of(live), what))
        elif (name := recorded_name(snapshot, broker_id, disk.name)) is not None:
            what = f"claim {name} of broker {broker_id} is gone"
            found.append(LostClaim(name, disk.name, _generation(snapshot, broker_id, disk.name, name), what))
    return found


def _generation(snapshot: Snapshot, broker_id: int, disk: str, name: str) -> int:
    """The generation of a claim that only its name is left of; 0 when it is none of ours."""
    cluster = snapshot.cluster.name
    numbers = range(1, HIGHEST_GENERATION)
    return next((one for one in numbers if names.broker_claim(cluster, broker_id, disk, one) == name), 0)
