"""Writes docs/reference/rights.md, and the section Rights in the docstring of each handler, from the table of rights.

`python -m ottla_broker.server.rights_reference`; a test fails when one of them is not current.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from ottla_broker.protocol import codec
from ottla_broker.server.edge.dispatch import ABOVE_KAFKA_3_9, LISTED, Listing
from ottla_broker.server.edge.rights import RIGHTS, NeededRight

HANDLERS = Path(__file__).parent / "handlers"

PAGE = """# Rights

Written by `make reference` from the table that the broker uses (`server/edge/rights.py`).

With an authorizer (`authorizer.class.name`) each request needs rights of the user who sends it; without one everything
is allowed. A right is an operation on a resource, such as Read:Topic. They are asked for in the order of the rows.
Read, Write, Delete and Alter include Describe; AlterConfigs includes DescribeConfigs. The only resource of the type
Cluster is `kafka-cluster`.

The error is that of the resource's type: TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED or DELEGATION_TOKEN_AUTHORIZATION_FAILED. Whoever
may not describe a resource is not told whether it exists.

| API | right | about | without it |
|---|---|---|---|
"""

_SECTION = re.compile(r"^Rights, in this order\n(?:    .*\n)+", re.MULTILINE)
_WIDTH = 120


def listings() -> list[Listing]:
    """One of each API that is served, by API key."""
    found = {listing.api_key: listing for listing in (*(row.listing for row in ABOVE_KAFKA_3_9), *LISTED)}
    return sorted(found.values())


def page() -> str:
    """The whole page, one row for each right of a listed API."""
    rows = []
    for listing in listings():
        name = codec.spec(listing.api_key).name
        for right in RIGHTS[listing.api_key].rights:
            rows.append(f"| {name} | {right.label} | {right.of} | {right.without} |")
        if not RIGHTS[listing.api_key].rights:
            rows.append(f"| {name} | none | | |")
    return PAGE + "\n".join(rows) + "\n"


def section(rights: tuple[NeededRight, ...]) -> str:
    """The section of a docstring; "" for an API without rights."""
    if not rights:
        return ""
    lines = [line for right in rights for line in _lines(f"{right.label} ({right.of}): {right.without}.")]
    return "\n".join(["Rights, in this order", *lines, ""])


def _lines(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def with_section(source: str, rights: tuple[NeededRight, ...]) -> str:
    """The source of a handler with today's section, before that of the errors."""
    without = _SECTION.sub("", source, count=1)
    head, mark, tail = without.partition("\nErrors")
    if not mark:
        raise ValueError("the docstring of the handler has no section Errors")
    return f"{head}\n{section(rights)}Errors{tail}"


def handler_sources() -> dict[Path, str]:
    """The source of each handler as it should be."""
    sources = {}
    for listing in listings():
        path = HANDLERS / f"{listing.module}.py"
        sources[path] = with_section(path.read_text(encoding="utf-8"), RIGHTS[listing.api_key].rights)
    return sources


def main() -> None:
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference/rights.md").write_text(page(), encoding="utf-8")
    for path, source in handler_sources().items():
        if path.read_text(encoding="utf-8") != source:
            path.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
