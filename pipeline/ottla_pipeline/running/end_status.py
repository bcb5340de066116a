"""What a driver leaves behind when it ends: its status, in as many bytes as Kubernetes keeps of a container. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 4096
"""The longest termination message; Kubernetes cuts it off there, and half a JSON document says nothing."""
ERROR_LENGTH = 800


def end_status(status: Mapping[str, Any]) -> str:
    """The status as one line of JSON, without the lag of each partition, and without its queries where they are many.

    >>> end_status({"phase": "Failed", "lastError": "x" * 2000, "queries": {}}).count("x")
    800
    >>> many = {"queries": {f"q{n}": {"lag": {"t": {"0": 1}}, "watermark": "w" * 99} for n in range(99)}}
    >>> end_status(many), end_status({"queries": {"q": {"lag": {"t": {"0": 1}}, "totalLag": 1}}})
    ('{"queries": {}}', '{"queries": {"q": {"totalLag": 1}}}')
    """
    queries = {
        name: {field: value for field, value in one.items() if field != "lag"}
        for name, one in (status.get("queries") or {}).items()
    }
    kept = {**status, "queries": queries}
    if "lastError" in kept:
        kept["lastError"] = str(kept["lastError"])[:ERROR_LENGTH]
    text = json.dumps(kept, ensure_ascii=False)
    return text if len(text.encode()) <= MOST_BYTES else json.dumps({**kept, "queries": {}}, ensure_ascii=False)
