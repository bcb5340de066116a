"""What a document says, as Spark's options: names that the source and the sink take."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_documents.pipeline_sink import FileSink, Sink, TopicSink
from ottla_documents.pipeline_source import FileSource, TopicSource
from ottla_pipeline.errors import OptionError
from ottla_pipeline.reading import options
from ottla_pipeline.running.query_options import (
    broker_options,
    file_options,
    session_settings,
    sink_options,
    topic_options,
    with_user_settings,
    wrong_config,
)
from ottla_pipeline.sink.write_options import Guarantee, parse_write_options

HERE = broker_options("h:1", {})


@pytest.mark.parametrize(
    "source",
    [
        TopicSource(topics=("a", "b")),
        TopicSource(pattern="f.*", isolation_level="read_uncommitted", is_data_loss_fatal=False, has_headers=True),
    ],
)
def test_the_source_takes_the_options_of_a_document(source: TopicSource) -> None:
    parsed = options.parse_stream(topic_options(source, broker_options("127.0.0.1:9092", {})))
    assert parsed.connecting.bootstrap == (("127.0.0.1", 9092),)
    assert parsed.connecting.read_committed == (source.isolation_level == "read_committed")
    assert parsed.include_headers == source.has_headers


def test_source_and_sink_reach_the_brokers_as_the_document_says() -> None:
    brokers = broker_options("h:1", {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"})
    read = options.parse_stream(topic_options(TopicSource(topics=("a",)), brokers)).connecting
    written = parse_write_options(sink_options(TopicSink("t"), brokers)).connecting
    assert read.security == written.security
    assert read.security.tls is not None and read.security.tls.trust_store is not None


def test_limits_are_options_only_where_they_are_written() -> None:
    assert "maxOffsetsPerTrigger" not in topic_options(TopicSource(topics=("a",)), HERE)
    assert topic_options(TopicSource(topics=("a",), max_offsets_per_trigger=7), HERE)["maxOffsetsPerTrigger"] == "7"
    assert file_options(FileSource("in", "json")) == {}
    assert file_options(FileSource("in", "json", max_files_per_trigger=3)) == {"maxFilesPerTrigger": "3"}


def test_the_sink_takes_the_options_of_a_document() -> None:
    parsed = parse_write_options(sink_options(TopicSink("t", "at-least-once", {"compression.type": "zstd"}), HERE))
    assert parsed.guarantee is Guarantee.AT_LEAST_ONCE and parsed.sending.codec.name == "ZSTD"


def test_tasks_of_executors_leave_rows_in_a_shared_folder_where_the_driver_writes_them() -> None:
    assert parse_write_options(sink_options(TopicSink("t"), HERE, "/claim/spool")).spool_directory == "/claim/spool"
    assert parse_write_options(sink_options(TopicSink("t"), HERE)).spool_directory is None
    sends_itself = parse_write_options(sink_options(TopicSink("t", "at-least-once"), HERE, "/claim/spool"))
    assert sends_itself.spool_directory is None


def test_new_batches_need_no_marker_of_the_one_before() -> None:
    assert parse_write_options(sink_options(TopicSink("t"), HERE, first_new_batch=8)).unmarked_from == 8
    assert parse_write_options(sink_options(TopicSink("t"), HERE)).unmarked_from is None
    parse_write_options(sink_options(TopicSink("t", "at-least-once"), HERE, first_new_batch=8))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"compression.type": "zstd", "linger.ms": "5"}, ""),
        (
            {"compresion.type": "zstd"},
            "spec.sink.topic.config.compresion.type: is unknown; did you mean",
        ),
        ({"acks": "2"}, "spec.sink.topic.config.acks: "),
        ({"batch.size": "-1"}, "spec.sink.topic.config.batch.size: "),
        (
            {"ssl.ca.location": "/ca.pem"},
            "spec.sink.topic.config.ssl.ca.location: belongs into spec.clientConfig, for source, sink and dead letters",
        ),
        ({"bootstrap.servers": "h:1"}, "spec.sink.topic.config.bootstrap.servers: comes from spec.clusterRef"),
    ],
)
def test_a_wrong_key_of_the_producer_names_its_field(config: dict[str, str], problem: str) -> None:
    found = wrong_config(TopicSink("t", config=config))
    assert found.startswith(problem) and bool(found) == bool(problem)


def test_a_local_session_stays_on_the_loopback_address() -> None:
    settings = session_settings("p", "local[2]", Path("x"))
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in session_settings("p", "k8s://https://h", Path("x"))


def test_only_a_sink_of_delta_lake_gets_its_settings() -> None:
    def extension(format: str) -> str | None:
        sink = Sink("source", FileSink(format, "/x"))
        return session_settings("p", "local", Path("x"), sink).get("spark.sql.extensions")

    assert (extension("delta"), extension("parquet")) == ("io.delta.sql.DeltaSparkSessionExtension", None)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("spark.jars", "option --conf: takes spark.KEY=VALUE, not 'spark.jars'"),
        ("jars=a", "option --conf: takes spark.KEY=VALUE, not 'jars=a'"),
        ("spark.master=local", "option --conf: spark.master is that of --master"),
    ],
)
def test_a_setting_that_is_none_of_sparks_is_refused(given: str, problem: str) -> None:
    with pytest.raises(OptionError) as refused:
        with_user_settings({}, [given])
    assert str(refused.value) == problem
