"""Writes the table of docs/reference/apis.md from what is listed: `python -m ottla_broker.server.compatibility`.

A test fails when the page is not current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import NAMES
from ottla_broker.server.edge.dispatch import ABOVE_KAFKA_3_9, LISTED

NOT_LISTED = {
    58: "a broker in ZooKeeper mode is sent none: it forwards requests to the controllers of KRaft",
}
"""Why an API that Apache Kafka 3.9 lists is not listed here, by API key."""

BEGIN = "<!-- table: python -m ottla_broker.server.compatibility -->"
END = "<!-- end of table -->"

KAFKA_3_9 = {
    0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 4: (0, 7), 5: (0, 4), 6: (0, 8), 7: (0, 3), 8: (0, 9), 9: (0, 9),
    10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 5), 16: (0, 5), 17: (0, 1), 18: (0, 4),
    19: (0, 7), 20: (0, 6), 21: (0, 2), 22: (0, 5), 23: (0, 4), 24: (0, 5), 25: (0, 4), 26: (0, 4), 27: (0, 1),
    28: (0, 4), 29: (0, 3), 30: (0, 3), 31: (0, 3), 32: (0, 4), 33: (0, 2), 34: (0, 2), 35: (0, 4), 36: (0, 2),
    37: (0, 3), 38: (0, 3), 39: (0, 2), 40: (0, 2), 41: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 0),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 56: (0, 3), 57: (0, 1), 58: (0, 0),
    60: (0, 1), 61: (0, 0), 65: (0, 0), 66: (0, 1), 67: (0, 0), 68: (0, 0), 69: (0, 0),
}  # fmt: skip
"""What ApiVersions of Apache Kafka 3.9.1 in ZooKeeper mode lists: lowest and highest version by API key."""


def table() -> str:
    """One row per API that we list, per range of a fleet of ours alone, and per API that we do not, in Markdown."""
    rows = ["| key | API | versions | Apache Kafka 3.9 |", "|---|---|---|---|"]
    for listing in LISTED:
        theirs = KAFKA_3_9[listing.api_key]
        rows.append(
            f"| {int(listing.api_key)} | {codec.spec(listing.api_key).name} | {listing.lowest}–{listing.highest} "
            f"| {theirs[0]}–{theirs[1]} |"
        )
    rows += ["", "Listed instead while every registered broker is one of ours:", ""]
    rows += ["| key | API | versions | listed when |", "|---|---|---|---|"]
    for row in ABOVE_KAFKA_3_9:
        listing = row.listing
        needs = f"{row.feature} is finalized at {row.level} or above" if row.feature else ""
        if row.option:
            needs = f"`{row.option}` is not 0"
        rows.append(
            f"| {int(listing.api_key)} | {codec.spec(listing.api_key).name} | {listing.lowest}–{listing.highest} "
            f"| {needs} |"
        )
    rows += ["", "Not listed, though Apache Kafka 3.9 lists them:", "", "| key | API | why |", "|---|---|---|"]
    rows += [f"| {key} | {NAMES[key]} | {why} |" for key, why in NOT_LISTED.items()]
    return "\n".join(rows)


def written_into(page: str) -> str:
    """The page with today's table. ValueError without the two marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    if not tail:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> None:
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference/apis.md")
    page.write_text(written_into(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
