"""What a KafkaPipeline says, as options of Spark's readers and writers and settings of its session. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla_broker.security.client_settings import is_security_key
from ottla_documents.kafka_pipeline import KafkaPipeline, Trigger
from ottla_documents.pipeline_jdbc import JdbcSink
from ottla_documents.pipeline_sink import EXACTLY_ONCE, FileSink, Sink, TopicSink
from ottla_documents.pipeline_source import FileSource, TopicSource
from ottla_pipeline.errors import OptionError
from ottla_pipeline.sink.write_options import parse_write_options

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def broker_options(bootstrap: str, security: Mapping[str, str]) -> dict[str, str]:
    """The options that say how brokers are reached. `security`: keys of a client, such as spec.clientConfig.

    >>> broker_options("h:1", {"security.protocol": "SSL"})
    {'kafka.bootstrap.servers': 'h:1', 'kafka.security.protocol': 'SSL'}
    """
    return {"kafka.bootstrap.servers": bootstrap, **{f"kafka.{key}": value for key, value in security.items()}}


def topic_options(source: TopicSource, brokers: Mapping[str, str]) -> dict[str, str]:
    """The options of `readStream.format("ottla")`. `brokers`: `broker_options`."""
    options = {
        **brokers,
        "startingOffsets": source.starting_offsets,
        "kafka.isolation.level": source.isolation_level,
        "failOnDataLoss": str(source.is_data_loss_fatal).lower(),
        "includeHeaders": str(source.has_headers).lower(),
    }
    if source.pattern:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    return options


def file_options(source: FileSource) -> dict[str, str]:
    """The options of `readStream.format(source.format)`."""
    return {"maxFilesPerTrigger": str(source.max_files_per_trigger)} if source.max_files_per_trigger else {}


def sink_options(
    sink: TopicSink, brokers: Mapping[str, str], spool: str = "", first_new_batch: int | None = None
) -> dict[str, str]:
    """The options of `writeStream.format("ottla")`, without the topic.

    Args:
        brokers: `broker_options`.
        spool: a folder that driver and executors share, where tasks leave rows for the driver's transaction; "" where
            all run on one machine.
        first_new_batch: of the query; see `run_folder.first_new_batch`.
    """
    of_transactions: dict[str, str] = {}
    if sink.guarantee == EXACTLY_ONCE:
        if spool:
            of_transactions["spoolDirectory"] = spool
        if first_new_batch is not None:
            of_transactions["missingMarker"] = str(first_new_batch)
    return {
        **brokers,
        "guarantee": sink.guarantee,
        **{f"kafka.{key}": value for key, value in sink.config.items()},
        **of_transactions,
    }


def wrong_config(sink: TopicSink) -> str:
    """What is wrong with spec.sink.topic.config, as "field: problem"; "" when nothing is.

    >>> wrong_config(TopicSink("t", config={"acsk": "1"}))
    'spec.sink.topic.config.acsk: is unknown; did you mean acks?'
    """
    for key in sink.config:
        if key == "bootstrap.servers":
            return f"spec.sink.topic.config.{key}: comes from spec.clusterRef or spec.bootstrapServers"
        if is_security_key(key):
            return f"spec.sink.topic.config.{key}: belongs into spec.clientConfig, for source, sink and dead letters"
    try:
        parse_write_options(sink_options(sink, broker_options("127.0.0.1:9092", {})))
    except OptionError as error:
        message = str(error).removeprefix(f"option {error.option}: ").replace("kafka.", "")
        return f"spec.sink.topic.config.{error.option.removeprefix('kafka.')}: {message}"
    return ""


def trigger_options(trigger: Trigger, is_once: bool) -> dict[str, bool | str]:
    """The arguments of `writeStream.trigger`. `is_once`: what is there now, whatever the document says.

    >>> trigger_options(Trigger(interval_ms=1500), False), trigger_options(Trigger(interval_ms=1500), True)
    ({'processingTime': '1500 milliseconds'}, {'availableNow': True})
    """
    if is_once or trigger.is_available_now:
        return {"availableNow": True}
    return {"processingTime": f"{trigger.interval_ms} milliseconds"}


def session_settings(name: str, master: str, folder: Path, sink: Sink | None = None) -> dict[str, str]:
    """The settings of the Spark session. With a local master everything stays on the loopback address.

    `sink`: Delta Lake needs settings of its own (https://docs.delta.io, "Set up Apache Spark with Delta Lake").
    """
    settings = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",  # an error is told once, in a line of its own, and not as a trace of Java's
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder.absolute() / "warehouse"),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.speculation": "false",
    }
    if sink is not None and is_delta(sink):
        settings |= {
            "spark.sql.extensions": DELTA_EXTENSION,
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    if is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",  # 200 by default, for a cluster: each is a task of every batch
        }
    return settings


def is_delta(sink: Sink) -> bool:
    """Whether Delta Lake writes."""
    return isinstance(sink.target, FileSink) and sink.target.format == "delta"


def with_user_settings(settings: Mapping[str, str], given: Sequence[str]) -> dict[str, str]:
    """The settings, with `KEY=VALUE` of the command line over them. OptionError for what is no setting of Spark.

    >>> with_user_settings({"spark.log.level": "OFF"}, ["spark.log.level=INFO", "spark.jars=a.jar,b.jar"])
    {'spark.log.level': 'INFO', 'spark.jars': 'a.jar,b.jar'}
    """
    merged = dict(settings)
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark."):
            raise OptionError("--conf", f"takes spark.KEY=VALUE, not {one!r}")
        if key in ("spark.master", "spark.app.name"):
            raise OptionError("--conf", f"{key} is that of {'--master' if key == 'spark.master' else 'the document'}")
        merged[key] = value
    return merged


def is_local(master: str) -> bool:
    """Whether all of Spark runs in one JVM.

    >>> [is_local(name) for name in ("local", "local[2]", "local[*, 3]", "k8s://https://h", "localhost")]
    [True, True, True, False, False]
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def summary(pipeline: KafkaPipeline) -> str:
    """One line: from where, through which views, to where.

    >>> from ottla_documents.kafka_pipeline import parse_pipeline
        >>> spec = {"source": {"topics": ["a"]}, "sink": {"topic": {"name": "b"}}, "bootstrapServers": "h:1"}
        >>> summary(parse_pipeline({"metadata": {"name": "p"}, "spec": spec})[0])
        'topics a -> source -> topic b, exactly-once; each batch at once; checkpoint .ottla/pipelines/p'
    """
    source, target = pipeline.source, pipeline.sink.target
    if isinstance(source, FileSource):
        begin = f"{source.format} files of {source.path}"
    else:
        kind = "table" if source.is_table else "topics"
        begin = f"topics like {source.pattern}" if source.pattern else f"{kind} {', '.join(source.topics)}"
    if isinstance(target, FileSink):
        end = f"{'Parquet files in' if target.format == 'parquet' else 'the Delta table'} {target.path}"
    elif isinstance(target, JdbcSink):
        end = f"table {target.table} of {target.url}, a row for each {', '.join(target.key)}"
    else:
        end = f"topic {target.topic}, {target.guarantee}"
    views = ", ".join(step.name for step in pipeline.steps) or "source"
    dead = f"; what cannot be read -> topic {pipeline.dead_letters}" if pipeline.dead_letters else ""
    return f"{begin} -> {views} -> {end}{dead}; {_when(pipeline.trigger)}; checkpoint {pipeline.checkpoint}"


def _when(trigger: Trigger) -> str:
    if trigger.schedule:
        return f"what is there at {trigger.schedule} ({trigger.time_zone})"
    if trigger.is_available_now:
        return "what is there now, then it ends"
    return f"a batch every {trigger.interval_ms / 1000:g} s" if trigger.interval_ms else "each batch at once"
