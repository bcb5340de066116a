"""Reads KafkaCluster, KafkaTopic and KafkaPipeline documents from YAML files.

A file may have several documents, separated by `---`. All problems are reported together, each with file and field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ottla_operator.model.fields import Problem, is_meant
from ottla_operator.model.kafka_cluster import KafkaCluster, parse_cluster
from ottla_operator.model.kafka_pipeline import KafkaPipeline, parse_pipeline
from ottla_operator.model.kafka_topic import KafkaTopic, parse_topic
from ottla_operator.model.templates import OWN_DOMAIN

API_VERSION = f"{OWN_DOMAIN}/v1alpha1"


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
            if isinstance(parsed, KafkaCluster):
                clusters.append(parsed)
            elif isinstance(parsed, KafkaPipeline):
                pipelines.append(parsed)
            elif parsed is not None:
                topics.append(parsed)
    wrong += _repeated("KafkaCluster", [cluster.name for cluster in clusters])
    wrong += _repeated("KafkaTopic", [_full_name(topic) for topic in topics])
    wrong += _repeated("KafkaPipeline", [_full_name(pipeline) for pipeline in pipelines])
    wrong += _shared(topics)
    if wrong:
        raise DocumentError(wrong)
    return Documents(tuple(clusters), tuple(topics), tuple(pipelines))


def _place(error: yaml.YAMLError) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return error.problem
    return " ".join(str(error).split())


def _parse(document: Any, problems: list[Problem]) -> KafkaCluster | KafkaTopic | KafkaPipeline | None:
    if not isinstance(document, Mapping):
        problems.append(Problem("kind", "the document is not a mapping with apiVersion, kind, metadata and spec"))
        return None
    if document.get("apiVersion") != API_VERSION:
        problems.append(Problem("apiVersion", f"must be {API_VERSION}, not {document.get('apiVersion')!r}"))
        return None
    kind = document.get("kind")
    if kind == "KafkaCluster":
        cluster, found = parse_cluster(document)
        problems += found
        return cluster
    if kind == "KafkaTopic":
        topic, found = parse_topic(document)
        problems += found
        return topic
    if kind == "KafkaPipeline":
        pipeline, found = parse_pipeline(document)
        problems += found
        return pipeline
    kinds = ("KafkaCluster", "KafkaTopic", "KafkaPipeline")
    problems.append(Problem("kind", f"must be one of {', '.join(kinds)}, not {kind!r}{is_meant(str(kind), kinds)}"))
    return None


def _shared(topics: list[KafkaTopic]) -> list[str]:
    """Conflicting topics: on Kubernetes the oldest KafkaTopic has the topic; documents in files have no age."""
    documents: dict[tuple[str, str, str], list[str]] = {}
    for topic in topics:
        place = (topic.cluster_namespace or topic.namespace, topic.cluster, topic.topic_name)
        documents.setdefault(place, []).append(_full_name(topic))
    return [
        f"KafkaTopics {' and '.join(dict.fromkeys(names))} name one topic, {topic}"
        for (_, _, topic), names in documents.items()
        if len(set(names)) > 1
    ]


def _full_name(named: KafkaTopic | KafkaPipeline) -> str:
    return named.name if named.namespace == "default" else f"{named.namespace}/{named.name}"


def _repeated(kind: str, names: list[str]) -> list[str]:
    return [f"{kind} {name} is declared twice" for name in dict.fromkeys(names) if names.count(name) > 1]
