"""The parser and the schema of the CustomResourceDefinition follow from one declaration, and say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from ottla_documents.custom_resources import CUSTOM_RESOURCES
from ottla_documents.documents import DocumentError, load_documents
from ottla_documents.generator import definition_text, editor_schema
from ottla_documents.kafka_cluster import parse_cluster
from ottla_documents.kafka_pipeline import parse_pipeline
from ottla_documents.kafka_topic import parse_topic
from ottla_documents.schema import nodes
from ottla_documents.schema.custom_resource import CustomResource
from ottla_documents.schema.marks import Problem
from tests.documents.generated_documents import documents
from tests.operator.crds.schema import violations

CHECKOUT = Path(__file__).parents[2]
PARSERS: Mapping[str, Callable[[Mapping[str, Any]], tuple[Any, list[Problem]]]] = {
    "KafkaCluster": parse_cluster,
    "KafkaPipeline": parse_pipeline,
    "KafkaTopic": parse_topic,
}
ONLY_THE_PARSER_KNOWS = (
    "must be more than nothing",  # a quantity may be a number, for which a schema has only one bound for all
    "must be a single value",  # of a config; a schema cannot say "anything but a list"
    "is no name of a label",
    "is no value of a label",
    "it cannot be set here",
    "in Kubernetes",  # of a pod's spec
)


def declared_problems(resource: CustomResource, document: Mapping[str, Any]) -> list[str]:
    """What the types of the fields say, without what the dataclasses compare themselves."""
    problems: list[Problem] = []
    with patch.object(nodes, "compared", lambda found: ()):
        nodes.read_object(resource.spec, document["spec"], "spec", problems)
    return [str(one) for one in problems if not any(words in one.message for words in ONLY_THE_PARSER_KNOWS)]


def test_the_parser_refuses_what_the_schema_refuses_and_nothing_else_of_what_a_schema_can_say() -> None:
    schemas = {resource.kind: resource.schema() for resource in CUSTOM_RESOURCES}
    refused = 0
    for resource, document in documents(1500):
        found = violations(schemas[resource.kind], document)
        of_spec = [path for path in found if path.startswith(".spec")]
        declared = declared_problems(resource, document)
        assert bool(declared) == bool(of_spec), (document, declared, of_spec)
        if found:
            refused += 1
            assert PARSERS[resource.kind](document)[1], document
    assert 300 < refused < 1200


def test_what_the_parser_finds_wrong_stops_nothing_else_of_a_document() -> None:
    """It gives a usable value for every document, whatever is in it."""
    for resource, document in documents(300):
        parsed, _ = PARSERS[resource.kind](document)
        assert parsed.name == document["metadata"]["name"]


@pytest.mark.parametrize("resource", CUSTOM_RESOURCES, ids=lambda resource: resource.kind)
def test_the_definitions_in_the_checkout_are_the_declared_ones(resource: CustomResource) -> None:
    text = (CHECKOUT / "crds" / f"{resource.kind.lower()}.yaml").read_text()
    assert text == definition_text(resource), "run `make reference`"
    assert yaml.safe_load(text) == resource.definition()


def test_the_schema_for_editors_in_the_checkout_is_the_declared_one() -> None:
    assert yaml.safe_load((CHECKOUT / "schemas" / "documents.json").read_text()) == editor_schema(), "make reference"


def _examples() -> Iterator[Path]:
    for folder in ("manifests", "examples"):
        yield from sorted((CHECKOUT / folder).glob("*.yaml"))


@pytest.mark.parametrize("path", _examples(), ids=lambda path: path.name)
def test_every_example_is_right_and_names_the_schema_for_editors(path: Path) -> None:
    text = path.read_text()
    try:
        load_documents([(path.name, text)])
    except DocumentError as error:
        pytest.fail(str(error))
    assert text.startswith("# yaml-language-server: $schema=../schemas/documents.json\n")
