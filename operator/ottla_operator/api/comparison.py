"""Compares a live object with a declared one, and ignores what others and the API server have added.

A server-side apply owns the fields that it names and nothing else: in a list of keyed items our items are ours and
items of others stay; a list without keys is ours as a whole. The comparison has the same rules. Otherwise a field that
an apply cannot remove would be written again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla_documents.quantity import quantity

LIST_KEYS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "containers": (("name",),),
    "env": (("name",),),
    "evictionResponders": (("name",),),
    "hostAliases": (("ip",),),
    "imagePullSecrets": (("name",),),
    "initContainers": (("name",),),
    "ownerReferences": (("uid",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "resourceClaims": (("name",),),
    "schedulingGates": (("name",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "volumeDevices": (("devicePath",),),
    "volumeMounts": (("mountPath",),),
    "volumes": (("name",),),
}
"""x-kubernetes-list-map-keys of the lists that we or a user's pod template declare, by the name of the field; the first
that fits applies. Source: listType=map and listMapKey in core/v1 of Kubernetes."""
KEY_DEFAULTS = {"protocol": "TCP"}
OPEN_LISTS = ("tolerations",)
"""Lists without keys to which admission plugins add items: each item of ours has to be in the list."""
QUANTITIES = ("requests", "limits", "overhead")
QUANTITY_FIELDS = ("sizeLimit", "divisor")
"""Mappings of quantities and single ones, which an API server rewrites in its canonical form."""
LEFT_OUT = {
    "publishNotReadyAddresses": False, "hostIPC": False, "hostNetwork": False, "hostPID": False, "hostPort": 0,
    "readOnly": False, "stdin": False, "stdinOnce": False, "tty": False, "value": "",
}  # fmt: skip
"""Fields with a value that an API server does not return: the zero value of a field that is no pointer."""


def list_keys(field: str, items: Sequence[Any]) -> tuple[str, ...] | None:
    """The keys of a list's items; None for a list that is one value."""
    for keys in LIST_KEYS.get(field, ()):
        if all(isinstance(item, Mapping) and keys[0] in item for item in items):
            return keys
    return None


def key_of(item: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(name, KEY_DEFAULTS.get(name)) for name in keys)


def differences(live: Any, desired: Any) -> list[str]:
    """The paths at which `live` differs from `desired`. Fields that only `live` has are no difference.

    >>> differences({"replicas": 1, "paused": False}, {"replicas": 1})
    []
    >>> differences({"ports": [{"name": "b", "port": 2, "protocol": "TCP"}, {"name": "a", "port": 1}]},
    ...             {"ports": [{"name": "a", "port": 1}, {"name": "c", "port": 2}]})
    ['ports[2/TCP].name']
    >>> differences({"requests": {"cpu": "500m"}}, {"requests": {"cpu": 0.5}})
    []
    >>> differences({"args": ["a"], "tolerations": [{"key": "theirs"}]}, {"args": ["a", "b"], "tolerations": []})
    ['args']
    >>> [differences(live, {"publishNotReadyAddresses": False}) for live in ({}, {"publishNotReadyAddresses": True})]
    [[], ['publishNotReadyAddresses']]
    """
    return _differences(live, desired, "", "")


def _differences(live: Any, desired: Any, path: str, field: str) -> list[str]:
    if type(desired) is dict or isinstance(desired, Mapping):
        if type(live) is not dict and not isinstance(live, Mapping):
            return [path] if desired or live is not None else []
        found: list[str] = []
        for name, value in desired.items():
            there = live.get(name)
            if there is value or (value.__class__ is str and there == value):
                continue  # most fields
            found += _field(live, name, value, f"{path}.{name}" if path else str(name), field)
        return found
    if isinstance(desired, list):
        return _list(live if isinstance(live, list) else [], desired, path, field)
    return [] if live == desired and isinstance(live, bool) == isinstance(desired, bool) else [path]


def _field(live: Mapping[str, Any], name: str, value: Any, path: str, parent: str) -> list[str]:
    there = live.get(name, LEFT_OUT.get(name))
    if (parent in QUANTITIES or name in QUANTITY_FIELDS) and not isinstance(value, Mapping | list):
        return [] if _is_same_quantity(there, value) else [path]
    return _differences(there, value, path, name)


def _list(live: list[Any], desired: list[Any], path: str, field: str) -> list[str]:
    if field in OPEN_LISTS:
        return [] if all(any(not differences(item, ours) for item in live) for ours in desired) else [path]
    keys = list_keys(field, desired)
    if keys is None:
        same = len(live) == len(desired) and not any(map(differences, live, desired))
        return [] if same else [path]
    there = {key_of(item, keys): item for item in live if isinstance(item, Mapping)}
    found: list[str] = []
    for ours in desired:
        key = key_of(ours, keys)
        place = f"{path}[{'/'.join(map(str, key))}]"
        item = there.get(key)
        found += [place] if item is None else _differences(item, ours, place, "")
    return found


def _is_same_quantity(live: Any, desired: Any) -> bool:
    try:
        return quantity(live) == quantity(desired)
    except ValueError:
        return bool(live == desired)
