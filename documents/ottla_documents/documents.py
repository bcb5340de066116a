"""Reads KafkaCluster, KafkaTopic and KafkaPipeline documents from YAML files.

A file may have several documents, separated by `---`. All problems are reported together, each with file and field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ottla_broker.config import is_meant
from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster
from ottla_documents.kafka_pipeline import KafkaPipeline, parse_pipeline
from ottla_documents.kafka_topic import KafkaTopic, parse_topic
from ottla_documents.schema.api_group import GROUP, VERSION
from ottla_documents.schema.marks import Problem

API_VERSION = f"{GROUP}/{VERSION}"


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a field that is written twice, as an API server does: of two values one would be lost."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.composer.ComposerError(
                        None, None, f"the field {key.value} is written twice", key.start_mark
                    )
                seen.add(key.value)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:  # a date with a month 13, a number of 5000 digits
            text = str(error).partition(":")[0]
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark) from None


class DocumentError(Exception):
    """Documents that cannot be used. `problems`: the lines of the message."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class Documents:
    """All documents of a set of files, in the order of the files."""

    clusters: tuple[KafkaCluster, ...]
    topics: tuple[KafkaTopic, ...]
    pipelines: tuple[KafkaPipeline, ...] = ()
    topic_places: tuple[str, ...] = ()
    """Where each of `topics` is written: "topics.yaml, document 2"."""


def load_documents(sources: Iterable[tuple[str, str]]) -> Documents:
    """Reads (file name, text) pairs.

    Raises:
        DocumentError: YAML that cannot be parsed, an unknown kind or apiVersion, a name given twice, or any field
            that cannot be served; all problems of all files together.
    """
    clusters: list[KafkaCluster] = []
    topics: list[KafkaTopic] = []
    pipelines: list[KafkaPipeline] = []
    wrong: list[str] = []
    places: dict[str, list[str]] = {"KafkaCluster": [], "KafkaTopic": [], "KafkaPipeline": []}
    for source, text in sources:
        try:
            documents = [document for document in yaml.load_all(text, _UniqueKeys) if document is not None]
        except yaml.YAMLError as error:
            wrong.append(f"{source}{_place(error)}: not YAML: {_reason(error)}")
            continue
        except RecursionError:
            wrong.append(f"{source}: not YAML: it is nested too deeply")
            continue
        for number, document in enumerate(documents, 1):
            place = f"{source}, document {number}"
            problems: list[Problem] = []
            parsed = _parse(document, problems)
            wrong += [f"{place}: {problem}" for problem in problems]
            if parsed is not None:
                places[type(parsed).__name__].append(place)
            if isinstance(parsed, KafkaCluster):
                clusters.append(parsed)
            elif isinstance(parsed, KafkaPipeline):
                pipelines.append(parsed)
            elif parsed is not None:
                topics.append(parsed)
    names = {
        "KafkaCluster": [cluster.name for cluster in clusters],
        "KafkaTopic": [_full_name(topic) for topic in topics],
        "KafkaPipeline": [_full_name(pipeline) for pipeline in pipelines],
    }
    for kind in places:
        wrong += _repeated(kind, names[kind], places[kind])
    wrong += _shared(topics, places["KafkaTopic"])
    if wrong:
        raise DocumentError(wrong)
    return Documents(tuple(clusters), tuple(topics), tuple(pipelines), tuple(places["KafkaTopic"]))


def _place(error: yaml.YAMLError) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return error.problem
    return " ".join(str(error).split())


def _parse(document: Any, problems: list[Problem]) -> KafkaCluster | KafkaTopic | KafkaPipeline | None:
    if not isinstance(document, Mapping):
        other = "; this is a properties file: `ottla broker run` runs one" if _is_properties(document) else ""
        message = f"the document is not a mapping with apiVersion, kind, metadata and spec{other}"
        problems.append(Problem("kind", message))
        return None
    if document.get("apiVersion") != API_VERSION:
        wrong = f", not {document['apiVersion']!r}" if "apiVersion" in document else ""
        problems.append(Problem("apiVersion", f"must be {API_VERSION}{wrong}"))
        return None
    kind = document.get("kind")
    if kind == "KafkaCluster":
        cluster, document_problems = parse_cluster(document)
        problems += document_problems
        return cluster
    if kind == "KafkaTopic":
        topic, document_problems = parse_topic(document)
        problems += document_problems
        return topic
    if kind == "KafkaPipeline":
        pipeline, document_problems = parse_pipeline(document)
        problems += document_problems
        return pipeline
    kinds = ("KafkaCluster", "KafkaTopic", "KafkaPipeline")
    wrong = "" if kind is None else f", not {kind!r}{is_meant(str(kind), kinds)}"
    problems.append(Problem("kind", f"must be one of {', '.join(kinds)}{wrong}"))
    return None


def _is_properties(document: Any) -> bool:
    """Whether YAML has read a properties file, which is one long text for it."""
    return isinstance(document, str) and "=" in document.split(" ")[0]


def _shared(topics: list[KafkaTopic], places: list[str]) -> list[str]:
    """Conflicting topics: on Kubernetes the oldest KafkaTopic has the topic; documents in files have no age."""
    documents: dict[tuple[str, str, str], dict[str, str]] = {}
    for topic, place in zip(topics, places, strict=True):
        key = (topic.cluster_namespace or topic.namespace, topic.cluster, topic.topic_name)
        documents.setdefault(key, {}).setdefault(_full_name(topic), place)
    return [
        f"KafkaTopics {' and '.join(found)} name one topic, {topic}: {_all_of(list(found.values()))}"
        for (_, _, topic), found in documents.items()
        if len(found) > 1
    ]


def _full_name(named: KafkaTopic | KafkaPipeline) -> str:
    return named.name if named.namespace == "default" else f"{named.namespace}/{named.name}"


def _repeated(kind: str, names: list[str], places: list[str]) -> list[str]:
    found: dict[str, list[str]] = {}
    for name, place in zip(names, places, strict=True):
        found.setdefault(name, []).append(place)
    return [f"{kind} {name} is declared twice: {_all_of(where)}" for name, where in found.items() if len(where) > 1]


def _all_of(places: list[str]) -> str:
    """
    >>> _all_of(["a.yaml, document 1", "b.yaml, document 1"])
    'in a.yaml, document 1, and in b.yaml, document 1'
    """
    return ", and ".join(f"in {place}" for place in places)
