"""The state of a running fleet in words, from its answer to the command status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_RECREATION = (("waiting", "replicas wait"), ("catching_up", "replicas catching up"), ("lost", "partitions lost"))
NOT_KNOWN = "–"


def fleet_state(status: Mapping[str, Any]) -> str:
    """What a fleet can do: "ready", or what it lacks.

    >>> disk, full = {"path": "/d0", "state": "online"}, {"path": "/d0", "state": "full"}
    >>> broker = {"id": 0, "pid": 7, "ready": True}
    >>> fleet_state({"ready": True, "start_s": 1, "brokers": [{**broker, "log_dirs": [disk]}]})
    'ready'
    >>> fleet_state({"ready": True, "start_s": 1, "brokers": [{**broker, "log_dirs": [full]}]})
    'ready, but every disk is full: producers are refused'
    """
    if status["start_s"] is None:
        return "starts"
    down = [str(broker["id"]) for broker in status["brokers"] if not broker["pid"]]
    silent = [
        str(broker["id"])
        for broker in status["brokers"]
        if broker["pid"] and any(directory["state"] == "unknown" for directory in broker["log_dirs"])
    ]
    text = "ready" if status["ready"] else "not ready"
    text += f", broker {', '.join(down)} is down" if down else ""
    text += f", broker {', '.join(silent)} does not answer" if silent else ""
    disks = _of_disks(status)
    joint = "" if not disks else ", but " if text == "ready" and "refused" in disks else "; "
    return text + joint + disks


def _of_disks(status: Mapping[str, Any]) -> str:
    """What disks that are full or offline mean for the fleet. Those of brokers that are down count for nothing."""
    states = [directory["state"] for broker in status["brokers"] if broker["pid"] for directory in broker["log_dirs"]]
    full, offline = states.count("full"), states.count("offline")
    if not full:
        return ""
    if full == len(states):
        return "every disk is full: producers are refused"
    if full + offline == len(states):
        return f"no disk takes records ({full} full, {offline} offline): producers are refused"
    return f"{full} of {len(states)} disks {'is' if full == 1 else 'are'} full"


def disks_of(broker: Mapping[str, Any]) -> str:
    """The log directories of one broker, and what is being recreated on them.

    The state of the directories of a broker that is down is not known: it is the broker that looks at them.

    >>> disks_of({"pid": None, "log_dirs": [{"path": "/b/d0", "state": "unknown"}], "recreation": {}})
    'd0 –'
    """
    shown = [
        f"{Path(entry['path']).name} {entry['state'] if broker['pid'] else NOT_KNOWN}" for entry in broker["log_dirs"]
    ]
    shown += [f"{broker['recreation'][name]} {words}" for name, words in _RECREATION if broker["recreation"].get(name)]
    return ", ".join(shown)


def starting_brokers(status: Mapping[str, Any]) -> str:
    """What a start waits for.

    >>> starting_brokers({"start_s": None, "brokers": [{"id": 0, "ready": True}, {"id": 1, "ready": False}]})
    'broker 1 is not ready'
    """
    if status["start_s"] is not None:
        return "its topics are created"
    waiting = [str(broker["id"]) for broker in status["brokers"] if not broker["ready"]]
    if not waiting:
        return "the coordination store"
    return f"broker {', '.join(waiting)} {'is' if len(waiting) == 1 else 'are'} not ready"
