"""Prints the reference pages of the operator: the fields of its custom resources, and its condition reasons.

`python -m ottla_operator.reference fields crds/*.yaml` reads the schemas of the CustomResourceDefinitions,
`python -m ottla_operator.reference reasons` the table of `api.condition_reasons`, and `metrics PAGE.md` writes the
table of `api.metric_names` into docs/reference/metrics.md. None of them needs kopf or a client.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ottla_operator.api import metric_names
from ottla_operator.api.condition_reasons import (
    CLUSTER,
    CONDITION_REASONS,
    CONDITION_TYPES,
    NOT_NEEDED_FOR_READY,
    READY,
    ConditionType,
    reason_of_ready,
)

USAGE = "usage: python -m ottla_operator.reference fields CRD.yaml... | reasons | metrics PAGE.md"


def fields_page(definitions: Sequence[Mapping[str, Any]]) -> str:
    """Every field of each CustomResourceDefinition with its type and description, in the order of the schema."""
    lines = [
        "# Fields of KafkaCluster, KafkaPipeline and KafkaTopic",
        "",
        "`python -m ottla_operator.reference fields crds/*.yaml` prints this page from the descriptions in `crds/`,",
        "which `kubectl explain` shows too. The operator writes the fields below `status`. Reasons of conditions:",
        "[condition-reasons.md](condition-reasons.md).",
    ]
    for definition in definitions:
        names = definition["spec"]["names"]
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            lines += [
                "",
                f"## {names['kind']} (`{definition['spec']['group']}/{version['name']}`)",
                "",
                str(schema["description"]),
                "",
                "| field | type | description |",
                "|---|---|---|",
                *(f"| `{path}` | {kind} | {text} |" for path, kind, text in _fields(schema, "")),
            ]
    return "\n".join(lines) + "\n"


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, child in schema.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        if child.get("description"):
            kind = _type(child) + (", required" if name in schema.get("required", ()) else "")
            yield place, kind, _cell(child["description"])
        yield from _fields(child, place)
        if child.get("type") == "array":
            yield from _fields(child["items"], f"{place}[]")


def _type(schema: Mapping[str, Any]) -> str:
    """
    >>> _type({"type": "array", "items": {"type": "string"}}), _type({"type": "string", "enum": ["Delete", "Retain"]})
    ('list of string', 'Delete or Retain')
    >>> _type({"type": "integer", "minimum": 1, "maximum": 9}), _type({"x-kubernetes-int-or-string": True})
    ('integer, 1 to 9', 'quantity')
    """
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = str(schema.get("format") if schema.get("format") == "date-time" else schema["type"])
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        values = schema["additionalProperties"]
        is_typed = "x-kubernetes-int-or-string" in values or "type" in values
        return f"map of string to {_type(values) if is_typed else 'scalar'}"
    if "minimum" in schema:
        most = f" to {schema['maximum']}" if "maximum" in schema else " or more"
        return f"{kind}, {schema['minimum']}{most}"
    return kind


def reasons_page() -> str:
    """Every condition type and reason, with its meaning and what to do."""
    lines = [
        "# Conditions of KafkaCluster, KafkaTopic and KafkaPipeline",
        "",
        "`python -m ottla_operator.reference reasons` prints this page from the table in",
        "`operator/ottla_operator/api/condition_reasons.py`. The message of a condition names the fields and objects.",
    ]
    for one in CONDITION_TYPES:
        lines += ["", f"## {one.resource}: {one.type}", "", f"True: {one.meaning[0].lower()}{one.meaning[1:]}.", ""]
        if (one.resource, one.type) == (CLUSTER, READY):
            lines += [
                "When another condition is not True, Ready is False with the reason that the tables below name for it,",
                "such as `DisksClaimLost`.",
                "",
            ]
        lines += _table(one)
    return "\n".join(lines) + "\n"


def _table(one: ConditionType) -> Iterator[str]:
    is_summed_up = one.resource == CLUSTER and one.type != READY and one.type not in NOT_NEEDED_FOR_READY
    columns = ["status", "reason", "reason of Ready", "meaning", "what to do"]
    if not is_summed_up:
        columns.remove("reason of Ready")
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in CONDITION_REASONS:
        if (row.resource, row.type) == (one.resource, one.type):
            of_ready = f"`{reason_of_ready(row.type, row.reason)}`" if row.status != "True" else ""
            cells = [row.status, f"`{row.reason}`", *([of_ready] if is_summed_up else []), row.meaning, row.action]
            yield f"| {' | '.join(map(_cell, cells))} |"


METRICS_BEGIN = "<!-- table: python -m ottla_operator.reference metrics -->"
METRICS_END = "<!-- end of the operator's table -->"


def with_metrics(page: str) -> str:
    """The page of metrics with the table of the operator's metrics between its two marks."""
    before, rest = page.split(METRICS_BEGIN)
    return f"{before}{METRICS_BEGIN}\n\n{metric_names.table()}\n\n{METRICS_END}{rest.split(METRICS_END)[1]}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    """Prints the page that the first argument names; 2 when it names none."""
    match arguments:
        case ["metrics", path]:
            page = Path(path)
            page.write_text(with_metrics(page.read_text(encoding="utf-8")), encoding="utf-8")
        case ["fields", *paths] if paths:
            sys.stdout.write(fields_page([yaml.safe_load(Path(path).read_text(encoding="utf-8")) for path in paths]))
        case ["reasons"]:
            sys.stdout.write(reasons_page())
        case _:
            sys.stderr.write(USAGE + "\n")
            return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
