"""Which images a cluster runs: an upgrade of the operator restarts no fleet unless the KafkaCluster asks for it.

By role, the first of: the image of the spec; with `imageUpdatePolicy: FollowOperator` the operator's; the image that
status records; that of the StatefulSets (status was lost, or an earlier release wrote it); the operator's. Status
records an image once a member is ready with it, so one that never started is given up when it is corrected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla_operator.api import names
from ottla_operator.api.objects import STATEFUL_SET, Obj, dig, has_condition, label, name_of
from ottla_operator.facts.snapshot import ContainerImages, Snapshot

FIELDS = ("spec.image", "spec.imagePullPolicy", "spec.imageUpdatePolicy")
ROLES = (names.BROKER, names.ZOOKEEPER)


def decide_images(snapshot: Snapshot, offered: ContainerImages) -> ContainerImages:
    """The images that the pods of this cluster should run, and their pull policy.

    Args:
        offered: the operator's own.
    """
    cluster = snapshot.cluster
    return ContainerImages(
        broker=_image(snapshot, names.BROKER, cluster.image, offered.broker),
        zookeeper=_image(snapshot, names.ZOOKEEPER, cluster.zookeeper.image, offered.zookeeper),
        pull_policy=cluster.image_pull_policy or offered.pull_policy,
    )


def images_status(snapshot: Snapshot) -> Obj:
    """What status records; the operator's images where no field of spec decides and the cluster runs another one."""
    found: Obj = {}
    follows = snapshot.cluster.image_update_policy == "FollowOperator"
    declared = {names.BROKER: snapshot.cluster.image, names.ZOOKEEPER: snapshot.cluster.zookeeper.image}
    for role in ROLES:
        if role == names.ZOOKEEPER and snapshot.cluster.zookeeper.connect:
            continue
        image, own = str(getattr(snapshot.images, role)), str(getattr(snapshot.offered_images, role))
        recorded = image if image in _ready_with(snapshot, role) else _recorded(snapshot, role)
        if recorded:
            found[role] = recorded
        if image != own and not declared[role] and not follows:
            found[f"{role}Available"] = own
    return found


def _image(snapshot: Snapshot, role: str, declared: str, own: str) -> str:
    if declared:
        return declared
    if snapshot.cluster.image_update_policy == "FollowOperator":
        return own
    if recorded := _recorded(snapshot, role):
        return recorded
    running = Counter(_ready_with(snapshot, role))
    return running.most_common(1)[0][0] if running else own


def _recorded(snapshot: Snapshot, role: str) -> str:
    return str(snapshot.status("images", role) or "")


def _ready_with(snapshot: Snapshot, role: str) -> list[str]:
    """The image of each member that is ready, as its StatefulSet and its pod both name it."""
    return [
        image for stateful_set in snapshot.all(STATEFUL_SET) for image in _ready_image(snapshot, stateful_set, role)
    ]


def _ready_image(snapshot: Snapshot, stateful_set: Obj, role: str) -> Iterator[str]:
    pod = snapshot.pod(names.pod_of(name_of(stateful_set)))
    if label(stateful_set, "app.kubernetes.io/component") != role or pod is None or not has_condition(pod, "Ready"):
        return
    image = container_image(dig(stateful_set, "spec", "template", "spec"), role)
    if image and image == container_image(pod.get("spec"), role):
        yield image


def container_image(pod_spec: Obj | None, container: str) -> str:
    """The image of a container by its name; "" when there is none."""
    containers = dig(pod_spec, "containers") or []
    return next((str(one.get("image") or "") for one in containers if one.get("name") == container), "")
