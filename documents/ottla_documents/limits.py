"""The limits of the places that values of a document go to, in the words of the document's fields.

Here stands what no type of a field says (`field_types`). A value is checked before anything is made for it. What
Kubernetes or Kafka refuses later is refused at every try, and what is already there no longer follows the document.

    key of a label         63 characters, after a domain of 253  rackKey
    StatefulSet            52 characters: its pods get a label   name of the cluster with the highest id of an idRange
                           with the name and a hash
    all annotations        256 KiB, with those of the operator   metadata.annotations of templates
    ConfigMap              1 MiB                                 config of a pool, document of a pipeline
    string of Kafka        32 767 bytes                          each value of config
    id of a broker         reserved.broker.max.id                idRange
    topic                  249 characters                        KafkaTopic

Source: validation.go of k8s.io/apimachinery, TotalAnnotationSizeLimitB, MaxSecretSize and the string type of Kafka's
protocol guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ottla_broker.config import BROKER_KEYS, ConfigError
from ottla_broker.config.properties import format_properties
from ottla_documents.field_types import scalar_text
from ottla_documents.schema.marks import Problem

KAFKA_STRING_BYTES = 32_767
CONFIG_MAP_BYTES = 1 << 20
ANNOTATIONS_BYTES = 256 << 10
LABEL_LENGTH = 63
OBJECT_NAME_LENGTH = 253
STATEFUL_SET_LENGTH = 52
TOPIC_LENGTH = 249
OWN_CONFIG_BYTES = 16 << 10
"""What the operator adds to server.properties."""
OWN_ANNOTATIONS_BYTES = 64 << 10
"""What the operator keeps for its own annotations of an object, those of claims that are replaced among them."""
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_ANNOTATED = ("pod", "service", "bootstrapService", "persistentVolumeClaim")


def too_long_for_kafka(text: str) -> str:
    """Why a text is no string of Kafka's protocol; "" when it is one.

    >>> too_long_for_kafka("a"), too_long_for_kafka("ä" * 20_000)
    ('', 'has 40000 bytes; a string of Kafka has at most 32767')
    """
    size = len(text.encode(errors="surrogatepass"))
    return "" if size <= KAFKA_STRING_BYTES else f"has {size} bytes; a string of Kafka has at most {KAFKA_STRING_BYTES}"


def config_problems(config: object, path: str) -> Iterator[Problem]:
    """The values of a `config` that do not fit into a request or an answer of Kafka."""
    for key, value in _scalars(config).items():
        if wrong := too_long_for_kafka(value):
            yield Problem(f"{path}.{key}", wrong)


def cluster_problems(document: Mapping[str, Any]) -> list[Problem]:
    """What of a KafkaCluster does not fit where it goes. Values of a wrong type are left to `kafka_cluster`.

    >>> [str(one)[:50] for one in cluster_problems({"spec": {"brokers": {"rackKey": "a" * 64}}})]
    ["spec.brokers.rackKey: 'aaaaaaaaaaaaaaaaaaaaaaaaaaa"]
    """
    spec = _mapping(document.get("spec"))
    brokers, zookeeper = _mapping(spec.get("brokers")), _mapping(spec.get("zookeeper"))
    name = _text(_mapping(document.get("metadata")).get("name"))
    found = [*_of_brokers(brokers, "spec.brokers"), *_rack_key(brokers)]
    own = _scalars(brokers.get("config"))
    found += _server_properties(own, "spec.brokers.config")
    for path, pool in _items(brokers, "pools", "spec.brokers"):
        found += _of_brokers(pool, path)
        config = {**own, **_scalars(pool.get("config"))}
        if config != own:
            found += _server_properties(config, f"{path}.config")
        found += _id_range(pool, path, name, config)
    found += _templates(zookeeper, "spec.zookeeper")
    return found


def topic_problems(document: Mapping[str, Any]) -> list[Problem]:
    """What of a KafkaTopic does not fit into Kafka's requests. A topicName that is too long is reported with its form.

    >>> [str(one)[:70] for one in topic_problems({"metadata": {"name": "t" * 250}, "spec": {}})]
    ['metadata.name: has 250 characters; a topic has at most 249: give it a ']
    """
    spec = _mapping(document.get("spec"))
    found = list(config_problems(spec.get("config"), "spec.config"))
    name = _text(_mapping(document.get("metadata")).get("name"))
    if spec.get("topicName") is None and len(name) > TOPIC_LENGTH:
        message = f"has {len(name)} characters; a topic has at most {TOPIC_LENGTH}: give it a shorter spec.topicName"
        found.append(Problem("metadata.name", message))
    return found


def too_large_for_a_config_map(size: int) -> str:
    """
    >>> too_large_for_a_config_map(2_000_000), too_large_for_a_config_map(5)
    ('has 2000000 bytes; a ConfigMap has at most 1048576', '')
    """
    return "" if size <= CONFIG_MAP_BYTES else f"has {size} bytes; a ConfigMap has at most {CONFIG_MAP_BYTES}"


def _of_brokers(fields: Mapping[str, Any], path: str) -> list[Problem]:
    """What spec.brokers and a pool have in common."""
    return list(config_problems(fields.get("config"), f"{path}.config")) + _templates(fields, path)


def _rack_key(brokers: Mapping[str, Any]) -> list[Problem]:
    key = _text(brokers.get("rackKey"))
    domain, _, name = key.rpartition("/")
    if not key or (
        len(name) <= LABEL_LENGTH
        and _LABEL_NAME.fullmatch(name)
        and (not domain or (len(domain) <= OBJECT_NAME_LENGTH and _SUBDOMAIN.fullmatch(domain)))
    ):
        return []
    return [
        Problem("spec.brokers.rackKey", f"{key[:100]!r} is no key of a label (63 characters, after a domain of 253)")
    ]


def _templates(parent: Mapping[str, Any], path: str) -> list[Problem]:
    found = []
    most = ANNOTATIONS_BYTES - OWN_ANNOTATIONS_BYTES
    for part in _ANNOTATED:
        metadata = _mapping(_mapping(_mapping(parent.get("template")).get(part)).get("metadata"))
        annotations = _scalars(metadata.get("annotations"))
        size = sum(len(f"{key}{value}".encode(errors="surrogatepass")) for key, value in annotations.items())
        if size > most:
            message = (
                f"have {size} bytes, more than {most}: an object has at most {ANNOTATIONS_BYTES} bytes of annotations, "
                f"and {OWN_ANNOTATIONS_BYTES} are for the operator's"
            )
            found.append(Problem(f"{path}.template.{part}.metadata.annotations", message))
    return found


def _server_properties(config: Mapping[str, str], path: str) -> list[Problem]:
    try:
        size = len(format_properties(config).encode(errors="surrogatepass")) + OWN_CONFIG_BYTES
    except ValueError:
        return []  # reported as no configuration
    wrong = too_large_for_a_config_map(size)
    return [Problem(path, f"as server.properties, with what the operator adds, {wrong}")] if wrong else []


def _id_range(pool: Mapping[str, Any], path: str, cluster: str, config: Mapping[str, str]) -> list[Problem]:
    last = _mapping(pool.get("idRange")).get("last")
    if isinstance(last, bool) or not isinstance(last, int):
        return []
    found = []
    highest = _highest_id(config)
    if highest is not None and last > highest:
        message = f"{last} is above reserved.broker.max.id, {highest}; set that key in config too"
        found.append(Problem(f"{path}.idRange.last", message))
    longest = len(f"{cluster}-broker-{last}")
    if longest > STATEFUL_SET_LENGTH:
        message = (
            f"the name {cluster}-broker-{last} has {longest} characters; that of a StatefulSet with pods has at most "
            f"{STATEFUL_SET_LENGTH}"
        )
        found.append(Problem(f"{path}.idRange.last", message))
    return found


def _highest_id(config: Mapping[str, str]) -> int | None:
    """reserved.broker.max.id; None where brokers do not look at it, or its value is reported elsewhere."""
    keys = ("broker.id.generation.enable", "reserved.broker.max.id")
    try:
        generates, highest = (
            BROKER_KEYS[key].parse(config[key]) if key in config else BROKER_KEYS[key].default for key in keys
        )
    except ConfigError:
        return None
    return int(highest) if generates else None


def _items(parent: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    items = parent.get(name)
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping):
            yield f"{path}.{name}[{index}]", item


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _scalars(value: object) -> dict[str, str]:
    return {
        str(key): scalar_text(one)
        for key, one in _mapping(value).items()
        if one is not None and not isinstance(one, Mapping | list)
    }
