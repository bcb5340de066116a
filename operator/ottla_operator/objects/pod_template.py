"""Adds a user's pod template to the operator's own, as Kubernetes' strategic merge does it.

Mappings are merged, lists with keys item by item (`api.comparison.LIST_KEYS`), other lists are replaced, with two
exceptions: terms of an affinity are added to the operator's, required node terms to each of them, since a broker has to
stay in its rack; and tolerations are added, since a pod with a local volume can run nowhere else.

What the operator sets and needs is not replaced: `template_problems` compares with the template that it builds, so
whatever is added to that template later is protected too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla_documents.pod_spec import REPLACE
from ottla_documents.schema.marks import Problem
from ottla_documents.templates import AddedMetadata, PodTemplate
from ottla_operator.api import names
from ottla_operator.api.comparison import LIST_KEYS, key_of
from ottla_operator.api.objects import Obj, annotation, dig, short_hash

SET_BY_OTHERS = {
    "restartPolicy": "a StatefulSet has pods that always restart",
    "hostname": "the addresses of brokers and servers follow from it",
    "subdomain": "the addresses of brokers and servers follow from it",
    "setHostnameAsFQDN": "the addresses of brokers and servers follow from it",
    "hostnameOverride": "the addresses of brokers and servers follow from it",
    "activeDeadlineSeconds": "a StatefulSet has pods that always run",
    "nodeName": "the scheduler sets it; use nodeSelector or affinity",
    "ephemeralContainers": "a template cannot have them; use kubectl debug",
    "overhead": "the runtime class sets it",
    "priority": "the priority class sets it; use priorityClassName",
    "serviceAccount": "use serviceAccountName",
}
"""Fields of a pod's spec that a template must not have, and why."""
OWN_IN_CONTAINER = (
    "args", "command", "image", "imagePullPolicy", "livenessProbe", "readinessProbe", "resources", "restartPolicy",
    "restartPolicyRules", "startupProbe", "terminationMessagePath", "terminationMessagePolicy",
)  # fmt: skip
OPEN_PATHS = ("/tmp",)
"""Mounts of ours below which others may mount."""


def with_template(stateful_set: Obj, template: PodTemplate) -> Obj:
    """The StatefulSet whose pods have what `template` adds."""
    own = with_metadata(stateful_set["spec"]["template"], template.metadata)
    merged = {**own, "spec": merged_pod_spec(own["spec"], template.spec)}
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": merged}}


def with_metadata(obj: Obj, added: AddedMetadata) -> Obj:
    """The object, or the template, with the added labels and annotations; ours stay."""
    metadata = dict(obj["metadata"])
    for part, values in (("labels", added.labels), ("annotations", added.annotations)):
        if values:
            metadata[part] = {**values, **metadata.get(part, {})}
    return {**obj, "metadata": metadata}


def claim_with_metadata(claim: Obj, added: AddedMetadata, live: Obj | None) -> Obj:
    """The claim with the added labels and annotations.

    A hash of them in an annotation shows when one is no longer declared, once there has been any.
    """
    declared = {"labels": dict(added.labels), "annotations": dict(added.annotations)}
    if not (added.labels or added.annotations or annotation(live or {}, names.TEMPLATE)):
        return claim
    hashed = AddedMetadata(added.labels, {**added.annotations, names.TEMPLATE: short_hash(declared)})
    return with_metadata(claim, hashed)


def merged_pod_spec(own: Obj, added: Mapping[str, Any]) -> Obj:
    """`own` with what is added.

    >>> own = {"containers": [{"name": "broker", "env": [{"name": "A", "value": "1"}]}], "tolerations": [{"key": "a"}]}
    >>> broker = {"name": "broker", "env": [{"name": "B", "value": "2"}]}
    >>> merged = merged_pod_spec(own, {"containers": [broker, {"name": "agent"}], "tolerations": [{"key": "b"}]})
    >>> [env["name"] for env in merged["containers"][0]["env"]], merged["containers"][1:], merged["tolerations"]
    (['A', 'B'], [{'name': 'agent'}], [{'key': 'b'}, {'key': 'a'}])
    """
    rest = {name: value for name, value in added.items() if name not in ("affinity", "tolerations")}
    merged: Obj = _merged(own, rest, "")
    if "affinity" in added:
        merged["affinity"] = _affinity(own.get("affinity") or {}, added["affinity"])
    if "tolerations" in added:
        merged["tolerations"] = _tolerations(own.get("tolerations") or [], added["tolerations"])
    return merged


def _merged(own: Any, added: Any, field: str) -> Any:
    if isinstance(own, Mapping) and isinstance(added, Mapping):
        if added.get(REPLACE) == "replace":
            own = {}
        fields = {name: _merged(own.get(name), value, name) for name, value in added.items() if name != REPLACE}
        return {**own, **fields}
    if isinstance(added, Mapping):
        return {name: _merged(None, value, name) for name, value in added.items() if name != REPLACE}
    if not isinstance(added, list):
        return added
    keys = _keys(field)
    if keys is None or not isinstance(own, list):
        return [_merged(None, item, "") for item in added]
    items = {key_of(item, keys): item for item in own}
    for item in added:
        items[key_of(item, keys)] = _merged(items.get(key_of(item, keys)), item, "")
    return list(items.values())


def _keys(field: str) -> tuple[str, ...] | None:
    """The keys of a list in a pod's spec; None for a list that is one value. The ports are those of containers."""
    return LIST_KEYS[field][0] if field in LIST_KEYS else None


def _affinity(own: Mapping[str, Any], added: Mapping[str, Any]) -> Obj:
    merged: Obj = _joined(own, {name: value for name, value in added.items() if name != "nodeAffinity"})
    if "nodeAffinity" not in added:
        return merged
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    ours, theirs = own.get("nodeAffinity") or {}, added["nodeAffinity"]
    node: Obj = _joined(ours, {name: value for name, value in theirs.items() if name != required})
    if required in theirs:
        our_terms = dig(ours, required, "nodeSelectorTerms") or [{}]
        their_terms = theirs[required].get("nodeSelectorTerms") or []
        terms = [_joined(our, their) for their in their_terms for our in our_terms]
        node[required] = {**theirs[required], "nodeSelectorTerms": terms}
    return {**merged, "nodeAffinity": node}


def _joined(own: Any, added: Any) -> Any:
    """Both, with the items of lists one after the other."""
    if isinstance(own, Mapping) and isinstance(added, Mapping):
        both = {name: _joined(own[name], value) if name in own else value for name, value in added.items()}
        return {**own, **both}
    return [*own, *added] if isinstance(own, list) and isinstance(added, list) else added


def _tolerations(own: Sequence[Obj], added: Sequence[Obj]) -> list[Obj]:
    """The added ones, and ours whose taint they do not name."""
    named = {(item.get("key"), item.get("effect")) for item in added}
    kept = [
        item for item in own if not {(item.get("key"), item.get("effect")), (item.get("key"), None)}.intersection(named)
    ]
    return [*added, *kept]


def template_problems(
    path: str, own: Obj, container: str, template: PodTemplate, instead: Mapping[str, str]
) -> list[Problem]:
    """What a template would replace of ours, and what Kubernetes' merge cannot identify.

    Args:
        path: the field with the template, such as "spec.brokers.template.pod".
        own: the StatefulSet that the operator builds without the template.
        container: the name of our container.
        instead: the field of KafkaCluster to use in place of a field of our container, by the latter.
    """
    spec, added = own["spec"]["template"]["spec"], template.spec
    problems = [
        Problem(f"{path}.spec.{name}", f"cannot be set: {why}") for name, why in SET_BY_OTHERS.items() if name in added
    ]
    problems += _without_keys(added, f"{path}.spec")
    if problems:
        return problems
    ours: Obj = next(item for item in spec["containers"] if item["name"] == container)
    volumes = {volume["name"] for volume in spec["volumes"]}
    for index, volume in enumerate(added.get("volumes") or []):
        if volume["name"] in volumes:
            problems.append(Problem(f"{path}.spec.volumes[{index}].name", f"{volume['name']} is a volume of ours"))
    for index, item in enumerate(added.get("containers") or []):
        place = f"{path}.spec.containers[{index}]"
        if item["name"] == container:
            problems += _replaced(place, ours, item, instead)
        else:
            problems += _beside(place, ours, item)
    for index, item in enumerate(added.get("initContainers") or []):
        place = f"{path}.spec.initContainers[{index}]"
        if item["name"] == container:
            problems.append(Problem(f"{place}.name", f"{container} is the name of our container"))
        problems += _beside(place, ours, item)
    required = dig(added, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        place = f"{path}.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        terms = required.get("nodeSelectorTerms") or []
        if not terms or not all(term.get("matchExpressions") or term.get("matchFields") for term in terms):
            problems.append(Problem(place, "must have terms, and each of them expressions: an empty one fits no node"))
    return problems


def _replaced(place: str, ours: Obj, item: Obj, instead: Mapping[str, str]) -> Iterator[Problem]:
    """What the entry of our own container would replace."""
    for name in OWN_IN_CONTAINER:
        if name in item:
            use = f"; use {instead[name]}" if name in instead else ""
            yield Problem(f"{place}.{name}", f"is set by the operator{use}")
    for field in ("env", "ports"):
        own = {key_of(one, LIST_KEYS[field][0]) for one in ours.get(field) or []}
        for index, one in enumerate(item.get(field) or []):
            key = key_of(one, LIST_KEYS[field][0])
            if key in own:
                yield Problem(f"{place}.{field}[{index}]", f"{'/'.join(map(str, key))} is set by the operator")
    mounts = [posixpath.normpath(mount["mountPath"]) for mount in ours["volumeMounts"]]
    for index, mount in enumerate(item.get("volumeMounts") or []):
        mount_path = posixpath.normpath(mount["mountPath"])
        for own_path in mounts:
            is_below = mount_path.startswith(f"{own_path}/") and own_path not in OPEN_PATHS
            if mount_path == own_path or is_below:
                yield Problem(f"{place}.volumeMounts[{index}].mountPath", f"{own_path} is a mount of ours")


def _beside(place: str, ours: Obj, item: Obj) -> Iterator[Problem]:
    """What a container beside ours lacks, or takes from it: the containers of a pod share their ports."""
    if "image" not in item:
        yield Problem(f"{place}.image", "is required")
    own = {port["containerPort"] for port in ours["ports"]}
    for index, port in enumerate(item.get("ports") or []):
        if port.get("containerPort") in own:
            yield Problem(f"{place}.ports[{index}].containerPort", f"{port['containerPort']} is a port of ours")


def _without_keys(value: Any, path: str, field: str = "") -> Iterator[Problem]:
    """Items of keyed lists without their key, or with the key of another item."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _without_keys(item, f"{path}.{name}", str(name))
    elif isinstance(value, list):
        keys = _keys(field)
        seen: set[tuple[Any, ...]] = set()
        for index, item in enumerate(value):
            place = f"{path}[{index}]"
            if keys is not None:
                missing = [name for name, part in zip(keys, key_of(item, keys), strict=True) if part is None]
                yield from (Problem(f"{place}.{name}", "is required") for name in missing)
                if not missing and key_of(item, keys) in seen:
                    yield Problem(place, f"{'/'.join(map(str, key_of(item, keys)))} is named twice")
                seen.add(key_of(item, keys))
            yield from _without_keys(item, place)
