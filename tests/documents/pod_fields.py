"""Writes `ottla_documents/pod_fields.py` from the models of the official Kubernetes client.

`python -m tests.documents.pod_fields` writes it; `test_pod_fields` compares. The product does not read the client:
`ottla local` and the broker's image of a test have none.
"""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes
from kubernetes.client import models

from ottla_documents import pod_fields

QUANTITIES = ("sizeLimit", "divisor")
MAPS_OF_QUANTITIES = ("requests", "limits", "overhead")
HEAD = '''"""The fields of a pod's spec and their types, as in Kubernetes {release}. Generated: do not edit.

`python -m tests.documents.pod_fields` writes this file from the models of the official Kubernetes client.
A type is int, str, bool, time, quantity, port (a number or a name), [of items], {{of values by name}}, or an entry.
"""

from __future__ import annotations

FIELDS = {{
'''


def rendered() -> str:
    """The text of the file."""
    types: dict[str, dict[str, str]] = {}
    _walk("V1PodSpec", types)
    lines = [HEAD.format(release=f"1.{kubernetes.__version__.partition('.')[0]}")]
    for name in sorted(types):
        lines.append(f'    "{name}": {{\n')
        lines += [f'        "{field}": "{kind}",\n' for field, kind in sorted(types[name].items())]
        lines.append("    },\n")
    return "".join(lines) + "}\n"


def _walk(model: str, types: dict[str, dict[str, str]]) -> None:
    found = getattr(models, model)
    name = model.removeprefix("CoreV1").removeprefix("V1")
    if name in types:
        return
    types[name] = {}
    for attribute, kind in found.openapi_types.items():
        field = found.attribute_map[attribute]
        if field in ("managedFields", "ownerReferences"):
            continue
        types[name][field] = _notation(field, kind)
        if inner := re.search(r"\w*V1\w+", kind):
            _walk(inner[0], types)


def _notation(field: str, kind: str) -> str:
    if found := re.fullmatch(r"List\[(.+)\]", kind):
        return f"[{_notation('', found[1])}]"
    if kind == "Dict[str, str]":
        return "{quantity}" if field in MAPS_OF_QUANTITIES else "{str}"
    if kind == "object":
        return "port"
    if kind == "str" and field in QUANTITIES:
        return "quantity"
    return {"datetime": "time"}.get(kind, kind.removeprefix("CoreV1").removeprefix("V1"))


if __name__ == "__main__":
    Path(pod_fields.__file__).write_text(rendered(), encoding="utf-8")
