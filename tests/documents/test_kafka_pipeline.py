"""KafkaPipeline documents, read the way a user would write them, and get them wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla_documents.documents import DocumentError, load_documents
from ottla_documents.executors import Executors
from ottla_documents.kafka_pipeline import (
    CheckpointClaim,
    EventTimeWatermark,
    KafkaPipeline,
    Trigger,
    parse_pipeline,
)
from ottla_documents.pipeline_jdbc import JdbcSink
from ottla_documents.pipeline_sink import FileSink, TopicSink
from ottla_documents.pipeline_source import FileSource, TopicSource, ValueFormat
from ottla_documents.pipeline_steps import PythonStep, SqlStep
from ottla_documents.resources import Resources

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HEAD = "apiVersion: kafka.ottla.dev/v1alpha1\nkind: KafkaPipeline\nmetadata: {name: delays}\n"
FULL = """
clusterRef: {name: orders}
source:
  topics: [flights]
  startingOffsets: earliest
  maxOffsetsPerTrigger: 10000
  isolationLevel: read_uncommitted
  failOnDataLoss: false
  includeHeaders: true
  value: {format: json, schema: "carrier string, delay double, at timestamp"}
steps:
- name: flights
  sql: SELECT value.* FROM source
- name: late
  python: my.steps:only_late
- name: by_carrier
  sql: |
    WITH w AS (SELECT * FROM late) SELECT carrier AS key, count(*) AS value
    FROM w JOIN Flights USING (carrier) GROUP BY 1;
sink:
  from: by_carrier
  topic: {name: delays, guarantee: at-least-once, config: {compression.type: zstd, linger.ms: 5}}
  outputMode: update
trigger: {interval: 1m30s}
watermark: {from: flights, column: at, delay: 10m}
checkpoint:
  path: /var/lib/delays
  size: 5Gi
  storageClassName: fast
  claimDeletionPolicy: Delete
  accessModes: [ReadWriteMany]
deadLetters: {topic: delays-dead}
restartPolicy: Never
backoffLimit: 0
suspend: true
resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 2Gi}}
executors: {instances: 3, resources: {limits: {cpu: 2, memory: 4Gi}}}
image: registry/pipelines:1
"""
LEAST = "bootstrapServers: '127.0.0.1:9092'\nsource: {topics: [a]}\nsink: {topic: {name: b}}\n"


def parse(spec: str) -> tuple[KafkaPipeline, list[str]]:
    pipeline, problems = parse_pipeline({"metadata": {"name": "delays"}, "spec": yaml.safe_load(spec)})
    return pipeline, [str(problem) for problem in problems]


def changed(spec: str, path: str, value: Any) -> list[str]:
    """The problems of the document with one field changed; None removes it."""
    document = {"metadata": {"name": "delays"}, "spec": yaml.safe_load(spec)}
    at: Any = document
    *way, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in way:
        at = at[part] if isinstance(part, int) else at.setdefault(part, {})
    at[last] = value
    return [str(problem) for problem in parse_pipeline(document)[1]]


def test_every_field_of_a_document_arrives() -> None:
    pipeline, problems = parse(FULL)
    assert problems == []
    assert pipeline == KafkaPipeline(
        name="delays",
        namespace="default",
        cluster="orders",
        bootstrap_servers="",
        source=TopicSource(
            topics=("flights",),
            starting_offsets="earliest",
            max_offsets_per_trigger=10000,
            isolation_level="read_uncommitted",
            is_data_loss_fatal=False,
            has_headers=True,
            value=ValueFormat("json", "carrier string, delay double, at timestamp"),
        ),
        steps=(
            SqlStep("flights", "SELECT value.* FROM source"),
            PythonStep("late", "my.steps:only_late", "flights"),
            SqlStep(
                "by_carrier",
                "WITH w AS (SELECT * FROM late) SELECT carrier AS key, count(*) AS value\n"
                "FROM w JOIN Flights USING (carrier) GROUP BY 1",
            ),
        ),
        sink=pipeline.sink,
        trigger=Trigger(interval_ms=90_000),
        watermark=EventTimeWatermark("flights", "at", 600_000),
        checkpoint="/var/lib/delays",
        dead_letters="delays-dead",
        restart_policy="Never",
        backoff_limit=0,
        is_suspended=True,
        resources=Resources({"cpu": "500m", "memory": "1Gi"}, {"memory": "2Gi"}),
        executors=Executors(3, Resources({}, {"cpu": "2", "memory": "4Gi"})),
        image="registry/pipelines:1",
        claim=CheckpointClaim("5Gi", "fast", "Delete", ("ReadWriteMany",)),
    )
    assert pipeline.sink.view == "by_carrier" and pipeline.sink.output_mode == "update"
    assert pipeline.sink.target == TopicSink("delays", "at-least-once", {"compression.type": "zstd", "linger.ms": "5"})


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{table: a}", ""),
        ("{table: a b}", "spec.source.table: must be letters, digits, ., _ and -, at most 249"),
        ("{table: b}", "spec.sink.topic.name: b is read by this pipeline: it would read what it writes"),
        ("{table: a, startingOffsets: latest}", "spec.source.startingOffsets: latest does not go with table"),
    ],
)
def test_a_table_is_one_topic_from_its_first_record(source: str, problem: str) -> None:
    sink = "{topic: {name: b}, outputMode: update}"
    pipeline, problems = parse(f"bootstrapServers: 'h:1'\nsource: {source}\nsink: {sink}")
    assert [found.startswith(problem) for found in problems] == ([True] if problem else [])
    assert problem or pipeline.source == TopicSource(topics=("a",), is_table=True, starting_offsets="earliest")


def test_absent_fields_have_defaults() -> None:
    pipeline, problems = parse(LEAST)
    assert problems == []
    assert pipeline.source == TopicSource(topics=("a",)) and pipeline.source.starting_offsets == "earliest"
    assert pipeline.sink.view == "source" and pipeline.sink.target == TopicSink("b", "exactly-once")
    assert pipeline.trigger == Trigger(interval_ms=0) and pipeline.watermark is None
    assert pipeline.checkpoint == ".ottla/pipelines/delays"
    assert (pipeline.image, pipeline.claim) == ("", CheckpointClaim("1Gi", "", "Retain", ("ReadWriteOnce",)))
    assert pipeline.executors is None
    assert (pipeline.restart_policy, pipeline.backoff_limit, pipeline.is_suspended) == ("OnFailure", 6, False)


def test_a_table_of_a_database_is_a_sink() -> None:
    pipeline, problems = parse(
        "source: {files: {path: in, format: text}}\nsink: {outputMode: update, jdbc: {url: 'jdbc:postgresql://h/d', "
        "table: s.t, key: [a, b], latestBy: c, user: u, passwordEnv: P, passwordSecret: {name: n, key: k}}}"
    )
    assert problems == []
    assert pipeline.sink.target == JdbcSink("jdbc:postgresql://h/d", "s.t", ("a", "b"), "c", "u", "P", ("n", "k"))


def test_files_become_parquet_without_any_broker() -> None:
    pipeline, problems = parse(
        "source: {files: {path: in, format: csv, schema: a int, maxFilesPerTrigger: 2}}\n"
        "sink: {parquet: {path: /out, partitionBy: [a]}}\nschedule: '0 * * * *'\ntimeZone: Europe/Berlin"
    )
    assert problems == [] and not pipeline.has_topics
    assert pipeline.source == FileSource("in", "csv", "a int", 2)
    assert pipeline.sink.target == FileSink("parquet", "/out", ("a",))
    assert pipeline.trigger == Trigger(is_available_now=True, schedule="0 * * * *", time_zone="Europe/Berlin")


JDBC = {"url": "jdbc:postgresql://h/d", "table": "delays", "key": ["carrier"]}


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            "metadata.name",
            "Delays",
            "metadata.name: must be lower case letters, digits and -",
        ),
        ("metadata.name", None, "metadata.name: is required"),
        ("spec.stpes", [], "spec.stpes: is not a field here; there are "),
        ("spec.source", None, "spec.source: is required"),
        ("spec.source", [], "spec.source: must be a mapping, not []"),
        ("spec.source", {}, "spec.source: has exactly one of topics, pattern, table, files, and none is given"),
        ("spec.source.topic", "flights", "spec.source.topic: is not a field here; there are "),
        ("spec.source.topics", "flights", "spec.source.topics: must be a list, not 'flights'"),
        ("spec.source.topics", [], "spec.source.topics: must have at least one item"),
        (
            "spec.source.topics",
            ["a b"],
            "spec.source.topics[0]: must be letters, digits, ., _ and -, at most 249",
        ),
        ("spec.source.topics", ["a", "a"], "spec.source.topics[1]: 'a' is there twice"),
        ("spec.source.pattern", "f.*", "spec.source: has exactly one of topics, pattern, table, files, not topics and"),
        ("spec.source.maxOffsetsPerTrigger", -1, "spec.source.maxOffsetsPerTrigger: must be between 1 and"),
        ("spec.source.maxOffsetsPerTrigger", "10", "spec.source.maxOffsetsPerTrigger: must be a whole number"),
        ("spec.source.startingOffsets", "earliset", "spec.source.startingOffsets: must be one of earliest, latest"),
        ("spec.source.failOnDataLoss", "no", "spec.source.failOnDataLoss: must be true or false, not 'no'"),
        ("spec.source.value", {"format": "json"}, "spec.source.value.schema: is required for json"),
        ("spec.source.value", {"format": "avro"}, "spec.source.value.format: must be one of binary, text, json"),
        ("spec.source.value", {"schema": "a int"}, "spec.source.value.schema: goes with format json, not binary"),
        ("spec.steps.0.name", "by carrier", "spec.steps[0].name: must be letters, digits and _, not"),
        ("spec.steps.0.name", "source", "spec.steps[0].name: source is the view of the source"),
        ("spec.steps.1.name", "FLIGHTS", "spec.steps[1].name: FLIGHTS is the name of a step before"),
        (
            "spec.steps.0.sql",
            "SELECT * FROM sorce",
            "spec.steps[0].sql: no view 'sorce' is there; there are source; is",
        ),
        ("spec.steps.0.sql", "SELECT * FROM late", "spec.steps[0].sql: no view 'late' is there; there are source"),
        ("spec.steps.0.sql", "DROP TABLE x", "spec.steps[0].sql: must be a query"),
        ("spec.steps.0.sql", "  ;  ", "spec.steps[0].sql: must be a query"),
        ("spec.steps.0.sql", 5, "spec.steps[0].sql: must be a string, not 5"),
        ("spec.steps.0.sql", None, "spec.steps[0].sql: is required, or python"),
        ("spec.steps.0.python", "a:b", "spec.steps[0].python: a step has either sql or python"),
        ("spec.steps.1.python", "steps.py", "spec.steps[1].python: must be module:function"),
        ("spec.steps.1.from", "nowhere", "spec.steps[1].from: no view 'nowhere' is there; there are source, flights"),
        ("spec.steps.1", "SELECT 1", "spec.steps[1]: must be a mapping, not 'SELECT 1'"),
        ("spec.sink.from", "by_carier", "spec.sink.from: no view 'by_carier' is there; there are "),
        (
            "spec.sink.iceberg",
            {"table": "a.b"},
            "spec.sink.iceberg: is not a field here; there are delta, from, jdbc, outputMode, parquet, topic",
        ),
        ("spec.sink.topic.guarantee", "exactly_once", "spec.sink.topic.guarantee: must be one of exactly-once,"),
        (
            "spec.sink.topic.name",
            "",
            "spec.sink.topic.name: must be letters, digits, ., _ and -, at most 249, and neither . nor .., not ''",
        ),
        (
            "spec.sink.topic.config",
            {"sasl.jaas.config": "x"},
            "spec.sink.topic.config.sasl.jaas.config: is a secret, and this field is stored in a ConfigMap; it will be "
            "taken from a Secret that spec.sink.topic.configSecrets names",
        ),
        ("spec.sink.topic.name", "flights", "spec.sink.topic.name: flights is read by this pipeline"),
        ("spec.sink.outputMode", "upsert", "spec.sink.outputMode: must be one of append, update, complete"),
        ("spec.trigger.interval", "10 seconds", "spec.trigger.interval: must be a duration such as 500ms"),
        ("spec.trigger.interval", -5, "spec.trigger.interval: must be a string, not -5"),
        ("spec.trigger.interval", "-5s", "spec.trigger.interval: must be a duration"),
        ("spec.trigger.interval", "9999h", "spec.trigger.interval: must be at most a year"),
        ("spec.trigger.availableNow", True, "spec.trigger.availableNow: does not go with interval"),
        ("spec.schedule", "0 * * * *", "spec.schedule: does not go with trigger.interval"),
        ("spec.timeZone", "Europe/Berlin", "spec.timeZone: goes with schedule"),
        ("spec.watermark.delay", None, "spec.watermark.delay: is required"),
        ("spec.watermark.column", None, "spec.watermark.column: is required"),
        ("spec.checkpoint.path", "s3a://bucket/x", "spec.checkpoint.path: must be a path of a file system"),
        ("spec.checkpoint.path", "abfs:x", "spec.checkpoint.path: must be a path of a file system, without a scheme"),
        ("spec.checkpoint.path", "", "spec.checkpoint.path: is empty"),
        ("spec.deadLetters.topic", "delays", "spec.deadLetters.topic: delays is the topic of the sink too"),
        ("spec.deadLetters.topic", "flights", "spec.deadLetters.topic: flights is read by this pipeline"),
        ("spec.deadLetters", {}, "spec.deadLetters.topic: is required"),
        ("spec.restartPolicy", "Always", "spec.restartPolicy: must be one of OnFailure, Never"),
        ("spec.backoffLimit", -1, "spec.backoffLimit: must be between 0 and"),
        ("spec.resources.requests.memory", "3Gi", "spec.resources.requests.memory: 3Gi is more than the limit 2Gi"),
        ("spec.resources.limits.memory", "-1Gi", "spec.resources.limits.memory: must not be less than nothing"),
        ("spec.resources.limits.memory", "2GB", "spec.resources.limits.memory: '2GB' is not a quantity"),
        ("spec.executors", 2, "spec.executors: must be a mapping, not 2"),
        ("spec.executors.instances", None, "spec.executors.instances: is required"),
        ("spec.executors.instances", 0, "spec.executors.instances: must be between 1 and 1000, not 0"),
        ("spec.executors.cores", 2, "spec.executors.cores: is not a field here; there are instances, resources"),
        (
            "spec.executors.resources.requests",
            {"memory": "2Gi"},
            "spec.executors.resources.requests.memory: must be the limit 4Gi, or left out",
        ),
        (
            "spec.executors.resources.limits.memory",
            "600Mi",
            "spec.executors.resources.limits.memory: must be 1Gi or more, not 600Mi",
        ),
        ("spec.checkpoint.accessModes", "ReadWriteMany", "spec.checkpoint.accessModes: must be a list, not"),
        ("spec.checkpoint.accessModes", ["ReadWriteOnce"], "spec.checkpoint.accessModes: must have ReadWriteMany with"),
        ("spec.checkpoint.accessModes", None, "spec.checkpoint.accessModes: must have ReadWriteMany with executors"),
        ("spec.clusterRef", None, "spec.clusterRef: is required where topics are read or written"),
        ("spec.bootstrapServers", "127.0.0.1:9092", "spec.bootstrapServers: does not go with clusterRef"),
    ],
)
def test_a_mistake_is_one_problem_that_names_its_field(path: str, value: Any, problem: str) -> None:
    (found,) = changed(FULL, path, value)
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("spec.stpes", "steps"), ("spec.source.topic", "topics"), ("spec.checkPoint", "checkpoint")],
)
def test_a_typo_is_answered_with_the_nearest_field(typo: str, meant: str) -> None:
    (found,) = changed(FULL, typo, "x")
    assert found.endswith(f"; is {meant} meant?")


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            "spec.bootstrapServers",
            "broker",
            "spec.bootstrapServers: must be HOST:PORT,HOST:PORT; 'broker' is no address",
        ),
        ("spec.bootstrapServers", "a:1,b:99999", "spec.bootstrapServers: must be HOST:PORT,HOST:PORT; 'b:99999' is no"),
        (
            "spec.checkpoint",
            {"accessModes": ["ReadOnlyMany"]},
            "spec.checkpoint.accessModes[0]: must be one of ReadWriteOnce, ",
        ),
        ("spec.checkpoint", {"accessModes": []}, "spec.checkpoint.accessModes: must have at least one item"),
        ("spec.checkpoint", {"storageClassName": "a" * 254}, "spec.checkpoint.storageClassName: is longer than 253"),
        ("spec.checkpoint", "a folder", "spec.checkpoint: must be a mapping, not 'a folder'"),
        ("spec.sink", "b", "spec.sink: must be a mapping, not 'b'"),
        ("spec.sink", {"topic": "b"}, "spec.sink.topic: must be a mapping, not 'b'"),
        ("spec.sink", {"topic": {"name": "__consumer_offsets"}}, "spec.sink.topic.name: __consumer_offsets is a topic"),
        ("spec.sink", {"parquet": {"path": 3}}, "spec.sink.parquet.path: must be a string, not 3"),
        ("spec.sink", {"parquet": {"path": ".ottla/pipelines/delays"}}, "spec.sink.parquet.path: .ottla/pipelines/del"),
        ("spec.sink", {"delta": {"path": ".ottla/x/../pipelines/delays/out"}}, "spec.sink.delta.path: .ottla/x/../pip"),
        ("spec.deadLetters", "dead", "spec.deadLetters: must be a mapping, not 'dead'"),
        (
            "spec.deadLetters",
            {"topic": "__transaction_state"},
            "spec.deadLetters.topic: __transaction_state is a",
        ),
        ("spec.source", {"topics": ["a"], "value": {"format": "json", "schema": 7}}, "spec.source.value.schema: must"),
        ("spec.source", {"pattern": "."}, "spec.sink.topic.name: b is read by this pipeline, whose pattern is in it"),
        ("spec.resources", {"limits": {"memory": "600Mi"}}, "spec.resources.limits.memory: must be 1Gi or more, not"),
        ("spec.resources", {"requests": {"memory": "64Mi"}}, "spec.resources.requests.memory: must be 1Gi or more"),
        ("spec.schedule", "0 0 L * *", "spec.schedule: '0 0 L * *' is no schedule of five fields as cron has them: "),
        ("spec.schedule", "0 0 * * 5#2", "spec.schedule: '0 0 * * 5#2' is no schedule"),
        ("spec.schedule", "0 0 * * 1-7", "spec.schedule: '0 0 * * 1-7' is no schedule of five fields as cron has the"),
        ("spec.schedule", "every hour", "spec.schedule: 'every hour' is no schedule of five fields"),
        ("spec.schedule", "61 * * * *", "spec.schedule: '61 * * * *' is no schedule"),
        ("spec.schedule", "0 0 30 2 *", "spec.schedule: '0 0 30 2 *' is no schedule of five fields as cron has them"),
        ("spec.source", {"pattern": "f("}, "spec.source.pattern: 'f(' is no regular expression"),
        ("spec.source", {"pattern": ""}, "spec.source.pattern: is empty"),
        ("spec.source", {"table": {"topic": "a"}}, "spec.source.table: must be a string, not {'topic': 'a'}"),
        (
            "spec.source",
            {"table": "a"},
            "spec.sink.outputMode: append does not go with source.table, whose rows change",
        ),
        ("spec.source", {"files": {"path": "in"}}, "spec.source.files.schema: is required for a stream of files"),
        ("spec.source", {"files": {"format": "text"}}, "spec.source.files.path: is required"),
        (
            "spec.sink",
            {"jdbc": JDBC | {"url": "jdbc:mysql://h/d"}},
            "spec.sink.jdbc.url: must be an address that begins with jdbc:",
        ),
        ("spec.sink", {"jdbc": JDBC | {"url": "jdbc:postgresql://h/d?password=x"}}, "spec.sink.jdbc.url: holds a"),
        ("spec.sink", {"jdbc": JDBC | {"url": "jdbc:postgresql://u:p@h/d"}}, "spec.sink.jdbc.url: holds a password"),
        ("spec.sink", {"jdbc": JDBC | {"key": []}}, "spec.sink.jdbc.key: must have at least one item"),
        ("spec.sink", {"jdbc": JDBC | {"key": ["a b"]}}, "spec.sink.jdbc.key: 'a b' is no name of a column"),
        ("spec.sink", {"jdbc": JDBC | {"latestBy": "a b"}}, "spec.sink.jdbc.latestBy: 'a b' is no name"),
        ("spec.sink", {"jdbc": JDBC | {"table": "a.b.c"}}, "spec.sink.jdbc.table: 'a.b.c' is no TABLE or SCHEMA.TABLE"),
        (
            "spec.sink",
            {"jdbc": JDBC | {"passwordEnv": "a secret"}},
            "spec.sink.jdbc.passwordEnv: must be the name of an",
        ),
        (
            "spec.sink",
            {"jdbc": JDBC | {"passwordSecret": {"name": "n"}}},
            "spec.sink.jdbc.passwordSecret.key: is required",
        ),
        ("spec.sink", {"jdbc": JDBC, "outputMode": "complete"}, "spec.sink.outputMode: complete does not go with jdbc"),
        ("spec.sink", {}, "spec.sink: has exactly one of topic, parquet, delta, jdbc, and none is given"),
        ("spec.sink", {"topic": {"name": "b"}, "parquet": {"path": "/x"}}, "spec.sink: has exactly one of"),
        ("spec.sink", {"parquet": {"path": "/x"}, "outputMode": "complete"}, "spec.sink.outputMode: complete does not"),
        (
            "spec.sink",
            {"delta": {"path": "/x"}, "outputMode": "update"},
            "spec.sink.outputMode: update does not go",
        ),
        ("spec.sink", {"delta": {}}, "spec.sink.delta.path: is required"),
        ("spec.steps", "SELECT 1", "spec.steps: must be a list, not 'SELECT 1'"),
    ],
)
def test_a_mistake_in_the_least_document_is_one_problem(path: str, value: Any, problem: str) -> None:
    (found,) = changed(LEAST, path, value)
    assert found.startswith(problem)


@pytest.mark.parametrize("schedule", ["0 0 * * mon-fri", "*/5 0-6,12 1 JAN-JUN 0", " 30  6 * * 1 "])
def test_a_schedule_that_kubernetes_takes_is_taken(schedule: str) -> None:
    assert changed(LEAST, "spec.schedule", schedule) == []


@pytest.mark.parametrize(
    ("read", "written", "is_refused"),
    [
        ("in", "out", False),
        ("in", "in", True),
        ("in", "./in/late", True),
        ("in/flights", "in", False),
        ("in", "inside", False),
        ("/data/in", "data/in", False),
    ],
)
def test_files_that_a_pipeline_writes_are_not_those_that_it_reads(read: str, written: str, is_refused: bool) -> None:
    _, problems = parse(f"source: {{files: {{path: {read}, schema: a int}}}}\nsink: {{parquet: {{path: {written}}}}}\n")
    refused = f"spec.sink.parquet.path: {written} is read by this pipeline"
    assert [problem.startswith(refused) for problem in problems] == [True] * is_refused


@pytest.mark.parametrize(
    ("checkpoint", "is_refused"), [("out/checkpoint", True), ("out/_checkpoint", False), ("out/.ottla/p", False)]
)
def test_a_checkpoint_among_files_is_refused_where_their_readers_would_read_it(
    checkpoint: str, is_refused: bool
) -> None:
    _, problems = parse(
        f"bootstrapServers: 'h:1'\nsource: {{topics: [a]}}\nsink: {{parquet: {{path: out}}}}\n"
        f"checkpoint: {{path: {checkpoint}}}"
    )
    refused = "spec.sink.parquet.path: out has the checkpoint in it"
    assert [problem.startswith(refused) for problem in problems] == [True] * is_refused


@pytest.mark.parametrize(("sink", "is_refused"), [("parquet: {path: /x}", True), ("topic: {name: b}", False)])
def test_latest_is_refused_where_rows_and_dead_letters_would_begin_at_two_offsets(sink: str, is_refused: bool) -> None:
    _, problems = parse(
        "bootstrapServers: 'h:1'\nsource: {topics: [a], startingOffsets: latest}\n"
        f"sink: {{{sink}}}\ndeadLetters: {{topic: d}}"
    )
    refused = "spec.source.startingOffsets: latest does not go with deadLetters unless the sink is a topic"
    assert [problem.startswith(refused) for problem in problems] == [True] * is_refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD + "spec:\n  source: {topics: [a]}\n  source: {topics: [b]}\n",
            "f.yaml, line 6, column 3: not YAML: the fi",
        ),
        (HEAD + "spec: [", "not YAML"),
        (HEAD + "spec: {image: 2026-13-01}", "f.yaml, line 4, column 15: not YAML: month must be in 1..12"),
        (
            HEAD + f"spec: {{image: {'9' * 5000}}}",
            "f.yaml, line 4, column 15: not YAML: Exceeds the limit (4300 digits)",
        ),
        (HEAD + "spec: " + "[" * 5000, "f.yaml: not YAML: it is nested too deeply"),
        (HEAD + "spec: " + "{a: " * 3000 + "1" + "}" * 3000, "f.yaml: not YAML: it is nested too deeply"),
        (HEAD.replace("KafkaPipeline", "KafkaPipelines"), "; is KafkaPipeline meant?"),
        (HEAD + "spec:\n" + "\n".join("  " + line for line in LEAST.splitlines()) + "\n---\n", ""),
        (HEAD + "spec: {sink: {topic: {name: no}}}", "spec.sink.topic.name: must be a string, not False"),
        (HEAD + "spec: {sink: {topic: {name: 2026-01-01}}}", "spec.sink.topic.name: must be a string, not datetime"),
    ],
)
def test_oddities_of_yaml_are_told(text: str, message: str) -> None:
    if not message:
        assert len(load_documents([("f.yaml", text)]).pipelines) == 1
        return
    with pytest.raises(DocumentError) as raised:
        load_documents([("f.yaml", text)])
    assert message in str(raised.value)


def test_several_pipelines_in_one_file_and_the_same_name_twice() -> None:
    one = HEAD + "spec:\n" + "\n".join("  " + line for line in LEAST.splitlines()) + "\n"
    other = one.replace("delays", "other")
    found = load_documents([("f.yaml", f"{one}---\n{other}")])
    assert [pipeline.name for pipeline in found.pipelines] == ["delays", "other"]
    with pytest.raises(DocumentError, match="KafkaPipeline delays is declared twice"):
        load_documents([("f.yaml", f"{one}---\n{one}")])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_a_valid_document_whose_topics_are_declared(path: Path) -> None:
    found = load_documents([(str(path), path.read_text())])
    (pipeline,) = found.pipelines
    written = {pipeline.sink.target.topic if isinstance(pipeline.sink.target, TopicSink) else "", pipeline.dead_letters}
    assert written - {""} <= {topic.topic_name for topic in found.topics}
    assert {topic.cluster for topic in found.topics} == {pipeline.cluster} == {"orders"}


TLS = "{security.protocol: SSL, ssl.truststore.location: /etc/kafka/trust.pem, ssl.truststore.type: PEM}"


def test_how_brokers_are_reached_is_said_once_for_source_and_sink() -> None:
    pipeline, problems = parse(f"{LEAST}clientConfig: {TLS}\n")
    assert problems == []
    assert pipeline.client_config["ssl.truststore.location"] == "/etc/kafka/trust.pem"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{security.protocol: TLS}", "spec.clientConfig.security.protocol: must be of PLAINTEXT, SSL, SASL_PL"),
        (
            "{security.protocol: SSL, ssl.truststore.locaton: /t}",
            "spec.clientConfig.ssl.truststore.locaton: is unknown; did you mean ssl.truststore.location?",
        ),
        ("{linger.ms: 5}", "spec.clientConfig.linger.ms: is none of security.protocol, ssl.* and sasl.*"),
        (
            "{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: spark}",
            "spec.clientConfig.sasl.password: a login needs a password, for which documents have no field yet",
        ),
        (
            "{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: spark, sasl.password: s3cret}",
            "spec.clientConfig.sasl.password: is a secret, and this field is stored in a ConfigMap",
        ),
        (
            "{security.protocol: SSL, ssl.keystore.location: /k.p12, ssl.keystore.password: s3cret}",
            "spec.clientConfig.ssl.keystore.password: is a secret, and this field is stored in a ConfigMap",
        ),
        (
            "{security.protocol: SSL, ssl.certificate.location: /c.pem, ssl.key.pem: s3cret}",
            "spec.clientConfig.ssl.key.pem: is a secret, and this field is stored in a ConfigMap",
        ),
    ],
)
def test_what_is_wrong_with_how_brokers_are_reached_names_its_key(config: str, problem: str) -> None:
    _, problems = parse(f"{LEAST}clientConfig: {config}\n")
    assert len(problems) == 1
    assert str(problems[0]).startswith(problem) and "s3cret" not in str(problems[0])


def test_without_topics_nothing_says_how_brokers_are_reached() -> None:
    files = "source: {files: {path: in, format: text}}\nsink: {parquet: {path: out}}\n"
    _, problems = parse(f"{files}clientConfig: {TLS}\n")
    assert [str(one) for one in problems] == ["spec.clientConfig: goes with topics, which are not read or written here"]
