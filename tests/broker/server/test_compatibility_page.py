"""The compatibility page has the APIs that are listed."""

from __future__ import annotations

from pathlib import Path

from ottla_broker.protocol import codec
from ottla_broker.server import compatibility
from ottla_broker.server.edge.dispatch import ABOVE_KAFKA_3_9, LISTED

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "apis.md"


def test_the_page_has_the_table_of_the_listed_apis() -> None:
    page = PAGE.read_text()
    assert compatibility.written_into(page) == page


def test_every_api_of_kafka_is_listed_or_has_a_reason_why_not() -> None:
    listed = {int(listing.api_key) for listing in LISTED}
    assert listed | set(compatibility.NOT_LISTED) == set(compatibility.KAFKA_3_9)
    assert not listed & set(compatibility.NOT_LISTED)


def test_nothing_is_listed_beyond_its_definition_or_beyond_kafka() -> None:
    for listing in LISTED:
        defined = codec.spec(listing.api_key)
        lowest, highest = compatibility.KAFKA_3_9[listing.api_key]
        assert defined.min_version <= listing.lowest <= listing.highest <= defined.max_version
        assert lowest <= listing.lowest and listing.highest <= highest


def test_a_range_above_that_of_kafka_3_9_is_defined_and_takes_nothing_away() -> None:
    before = {listing.api_key: listing for listing in LISTED}
    for row in ABOVE_KAFKA_3_9:
        listing = row.listing
        defined = codec.spec(listing.api_key)
        assert defined.min_version <= listing.lowest <= listing.highest <= defined.max_version
        if listing.api_key in before:
            assert listing.lowest == before[listing.api_key].lowest
            assert listing.highest > before[listing.api_key].highest
            assert listing.module == before[listing.api_key].module
        before[listing.api_key] = listing
