"""Which revision of a StatefulSet's template a pod runs."""

from __future__ import annotations

from ottla_operator.api.objects import Obj, dig, label


def revisions_known(live: Obj) -> bool:
    """Whether the StatefulSet controller has observed the newest template, so that its revisions are current."""
    observed = dig(live, "status", "observedGeneration")
    return isinstance(observed, int) and observed >= int(live["metadata"].get("generation", 0))


def has_current_revision(live: Obj, pod: Obj) -> bool:
    """Whether the pod runs the newest template."""
    return bool(label(pod, "controller-revision-hash") == dig(live, "status", "updateRevision"))
