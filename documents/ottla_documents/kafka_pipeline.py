"""KafkaPipeline as a value: a Spark query from a source through steps to a sink.

`ottla pipeline` runs it on one machine, the operator on Kubernetes. Nothing here needs Spark: what only Spark knows,
such as the columns of a view, is checked when the pipeline is planned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla_documents.durations import FORM, duration_ms
from ottla_documents.executors import Executors, check_memory, parse_executors
from ottla_documents.fields import LABEL_FORM, SUBDOMAIN_FORM, Fields, Problem
from ottla_documents.kafka_cluster import IMAGE, IMAGE_FORM
from ottla_documents.maintenance_windows import DEFAULT_TIME_ZONE, is_time_zone, wrong_schedule
from ottla_documents.pipeline_sink import FileSink, Sink, TopicSink, parse_dead_letters, parse_sink
from ottla_documents.pipeline_source import (
    FileSource,
    Source,
    TopicSource,
    are_one_folder,
    folder,
    is_below,
    parse_source,
)
from ottla_documents.pipeline_steps import SOURCE_VIEW, Step, Views, parse_steps
from ottla_documents.resources import Resources, parse_resources
from ottla_documents.topic_namespaces import NAMESPACE_NAME

PIPELINE_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
STORAGE_CLASS_LENGTH = 253
STORAGE_CLASS = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
RESTART_POLICIES = ("OnFailure", "Never")
DEFAULT_BACKOFF_LIMIT = 6
"""Kubernetes' default for a Job."""
FAILED_FOR_GOOD = 3
"""Exit code of `ottla pipeline run` after a failure that another run would repeat. Python itself ends with 1, a command
line with a wrong option with 2."""
DEFAULT_DRIVER_RESOURCES = Resources({"cpu": "1", "memory": "2Gi"}, {})
DEFAULT_CLAIM_SIZE = "1Gi"
CLAIM_DELETION_POLICIES = ("Retain", "Delete")
READ_WRITE_ONCE, READ_WRITE_MANY = "ReadWriteOnce", "ReadWriteMany"
ACCESS_MODES = (READ_WRITE_ONCE, READ_WRITE_MANY)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:,\[\]]+):([0-9]{1,5})")
_DAYS = re.compile(r"[\d*/,-]+")
_WEEKDAYS = re.compile(r"([0-6*/,-]|(?<=/)\d+|[A-Za-z]{3}(?=[,-]|$))+")
_LONGEST_MS = 366 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a batch begins. Exactly one: `interval_ms` between the beginnings of batches (0: at once), or what is there
    now (`is_available_now`), for a `schedule` at each of its times."""

    interval_ms: int = 0
    is_available_now: bool = False
    schedule: str = ""
    time_zone: str = DEFAULT_TIME_ZONE


@dataclass(frozen=True, slots=True)
class EventTimeWatermark:
    """How late a row of `view` may be, by its time in `column`."""

    view: str
    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointClaim:
    """The PersistentVolumeClaim of the checkpoint on Kubernetes. `storage_class` "": the default of Kubernetes."""

    size: str = DEFAULT_CLAIM_SIZE
    storage_class: str = ""
    deletion_policy: str = CLAIM_DELETION_POLICIES[0]
    access_modes: tuple[str, ...] = (READ_WRITE_ONCE,)


@dataclass(frozen=True, slots=True)
class KafkaPipeline:
    """One pipeline. `bootstrap_servers` or `cluster`, where topics are read or written."""

    name: str
    namespace: str
    cluster: str
    bootstrap_servers: str
    source: Source
    steps: tuple[Step, ...]
    sink: Sink
    trigger: Trigger
    watermark: EventTimeWatermark | None = None
    checkpoint: str = ""
    dead_letters: str = ""
    restart_policy: str = "OnFailure"
    backoff_limit: int = DEFAULT_BACKOFF_LIMIT
    is_suspended: bool = False
    resources: Resources = DEFAULT_DRIVER_RESOURCES
    """This one, `executors`, `image` and `claim` are for pods on Kubernetes, and nothing on one machine."""
    executors: Executors | None = None
    image: str = ""
    claim: CheckpointClaim = CheckpointClaim()

    @property
    def has_topics(self) -> bool:
        """Whether a broker is needed."""
        return (
            isinstance(self.source, TopicSource) or isinstance(self.sink.target, TopicSink) or bool(self.dead_letters)
        )


def parse_pipeline(document: Mapping[str, Any]) -> tuple[KafkaPipeline, list[Problem]]:
    """Reads a KafkaPipeline document (apiVersion and kind are not checked).

    Returns:
        The pipeline, with a default in place of each wrong value, and the problems by field.
    """
    problems: list[Problem] = []
    root = Fields(document, "", problems, {"apiVersion", "kind", "status"})
    metadata = root.child("metadata")
    name = metadata.text("name", pattern=PIPELINE_NAME, form=f"{LABEL_FORM}, at most 63")
    namespace = metadata.text("namespace", "default", pattern=NAMESPACE_NAME, form=LABEL_FORM)
    spec = root.child("spec")
    cluster, servers = _brokers(spec)
    source = parse_source(spec)
    steps, views = parse_steps(spec)
    sink = parse_sink(spec, views)
    checkpoint, claim = _checkpoint(spec, name)
    pipeline = KafkaPipeline(
        name=name,
        namespace=namespace,
        cluster=cluster,
        bootstrap_servers=servers,
        source=source,
        steps=steps,
        sink=sink,
        trigger=_trigger(spec),
        watermark=_watermark(spec, views),
        checkpoint=checkpoint,
        dead_letters=parse_dead_letters(spec),
        restart_policy=spec.choice("restartPolicy", RESTART_POLICIES, "OnFailure"),
        backoff_limit=spec.whole("backoffLimit", DEFAULT_BACKOFF_LIMIT, lowest=0),
        is_suspended=spec.flag("suspend"),
        resources=parse_resources(spec, DEFAULT_DRIVER_RESOURCES),
        executors=parse_executors(spec),
        image=spec.text("image", "", pattern=IMAGE, form=IMAGE_FORM),
        claim=claim,
    )
    check_memory(spec, pipeline.resources)
    _check_together(spec, pipeline)
    spec.finish()
    root.finish()
    return pipeline, problems


def _brokers(spec: Fields) -> tuple[str, str]:
    reference = spec.child("clusterRef")
    cluster = reference.text("name") if spec.has("clusterRef") else ""
    reference.finish()
    servers = spec.text("bootstrapServers", "")
    if spec.has("bootstrapServers"):
        if spec.has("clusterRef"):
            spec.problem("bootstrapServers", "does not go with clusterRef, which names the brokers too")
        if isinstance(spec.values["bootstrapServers"], str) and (wrong := wrong_servers(servers)):
            spec.problem("bootstrapServers", wrong)
    return cluster, servers


def wrong_servers(text: str) -> str:
    """What is wrong with addresses of brokers; "" when nothing is.

    >>> wrong_servers("a:1, [::1]:9092"), wrong_servers("a:1,b")
    ('', "must be HOST:PORT,HOST:PORT; 'b' is no address")
    """
    for address in text.split(","):
        match = _ADDRESS.fullmatch(address.strip())
        if match is None or not 0 < int(match[2]) < 65536:
            return f"must be HOST:PORT,HOST:PORT; {address.strip()!r} is no address"
    return ""


def _trigger(spec: Fields) -> Trigger:
    schedule, time_zone = spec.text("schedule", ""), spec.text("timeZone", DEFAULT_TIME_ZONE)
    fields = spec.child("trigger")
    is_available_now = fields.flag("availableNow")
    interval_ms = _duration(fields, "interval", 0)
    if fields.has("interval") and is_available_now:
        fields.problem("availableNow", "does not go with interval: one run reads what is there and ends")
    fields.finish()
    if spec.has("schedule"):
        if isinstance(spec.values["schedule"], str) and (
            wrong := wrong_schedule(schedule) or _not_of_cron_jobs(schedule)
        ):
            spec.problem("schedule", f"{schedule!r} is no schedule of five fields as cron has them: {wrong}")
        if fields.has("interval"):
            spec.problem("schedule", "does not go with trigger.interval: each of its times reads what is there")
        if not is_time_zone(time_zone):
            spec.problem("timeZone", f"{time_zone!r} is no time zone of the IANA data base, such as Europe/Berlin")
        return Trigger(is_available_now=True, schedule=schedule, time_zone=time_zone)
    if spec.has("timeZone"):
        spec.problem("timeZone", "goes with schedule")
    return Trigger(interval_ms, is_available_now)


def _not_of_cron_jobs(schedule: str) -> str:
    """What a CronJob of Kubernetes does not take of a schedule that names some time.

    Source: the parser of github.com/robfig/cron that its API server has.

    >>> _not_of_cron_jobs("0 0 * * mon-fri"), _not_of_cron_jobs("0 0 L * *")[:19]
    ('', 'CronJobs take no L ')
    """
    _, _, days, _, weekdays = schedule.split()
    is_taken = _DAYS.fullmatch(days) and _WEEKDAYS.fullmatch(weekdays)
    return "" if is_taken else "CronJobs take no L and no #, and Sunday is 0 and not 7"


def _duration(fields: Fields, name: str, default: int) -> int:
    text = fields.text(name, "")
    if not isinstance(fields.values.get(name), str):
        return default
    try:
        found = duration_ms(text)
    except ValueError:
        fields.problem(name, f"must be {FORM}, not {text!r}")
        return default
    if found > _LONGEST_MS:
        fields.problem(name, f"must be at most a year, not {text}")
    return found


def _watermark(spec: Fields, views: Views) -> EventTimeWatermark | None:
    if not spec.has("watermark"):
        return None
    fields = spec.child("watermark")
    column = fields.text("column")
    view = fields.text("from", SOURCE_VIEW)
    views.check(fields, "from", view)
    if not fields.has("delay"):
        fields.problem("delay", f"is required: {FORM}")
    watermark = EventTimeWatermark(view, column, _duration(fields, "delay", 0))
    fields.finish()
    return watermark


def _checkpoint(spec: Fields, name: str) -> tuple[str, CheckpointClaim]:
    fields = spec.child("checkpoint")
    path = folder(fields, "path", f".ottla/pipelines/{name}")
    claim = CheckpointClaim(
        size=fields.size("size") or DEFAULT_CLAIM_SIZE,
        storage_class=fields.text("storageClassName", "", pattern=STORAGE_CLASS, form=SUBDOMAIN_FORM),
        access_modes=_access_modes(fields),
        deletion_policy=fields.choice("claimDeletionPolicy", CLAIM_DELETION_POLICIES, CLAIM_DELETION_POLICIES[0]),
    )
    if len(claim.storage_class) > STORAGE_CLASS_LENGTH:
        fields.problem("storageClassName", f"must have at most {STORAGE_CLASS_LENGTH} characters")
    fields.finish()
    return path, claim


def _access_modes(fields: Fields) -> tuple[str, ...]:
    modes = fields.texts("accessModes")
    for mode in modes:
        if mode not in ACCESS_MODES:
            fields.problem("accessModes", f"takes {' and '.join(ACCESS_MODES)}, not {mode!r}")
    if fields.has("accessModes") and fields.values["accessModes"] == []:
        fields.problem("accessModes", "must name at least one")
    return tuple(mode for mode in modes if mode in ACCESS_MODES) or (READ_WRITE_ONCE,)


def _check_together(spec: Fields, pipeline: KafkaPipeline) -> None:
    """What no field says by itself."""
    needs = spec.has("source") and spec.has("sink") and pipeline.has_topics
    if needs and not spec.has("clusterRef") and not spec.has("bootstrapServers"):
        spec.problem("clusterRef", "is required where topics are read or written, or bootstrapServers")
    is_named = any(problem.path == "spec.checkpoint.accessModes" for problem in spec.problems)
    if pipeline.executors is not None and READ_WRITE_MANY not in pipeline.claim.access_modes and not is_named:
        message = (
            f"must have {READ_WRITE_MANY} with executors, which write state and rows to the claim from other nodes; "
            "its StorageClass has to support that"
        )
        spec.problem("checkpoint.accessModes", message)
    source, target = pipeline.source, pipeline.sink.target
    if isinstance(target, FileSink):
        _check_folders(spec, pipeline, target)
    if not isinstance(source, TopicSource):
        return
    if source.is_table and pipeline.sink.output_mode == "append":
        mode = "append does not go with source.table, whose rows change; choose update, or complete for all rows again"
        spec.problem("sink.outputMode", mode)
    written = {target.topic} - {""} if isinstance(target, TopicSink) else set()
    for field, topics in (("sink.topic.name", written), ("deadLetters.topic", {pipeline.dead_letters} - {""})):
        for topic in topics & set(source.topics):
            spec.problem(field, f"{topic} is read by this pipeline: it would read what it writes, without an end")
        for topic in topics:
            if _has_pattern(source.pattern, topic):
                problem = f"{topic} is read by this pipeline, whose pattern is in it: it would read what it writes"
                spec.problem(field, problem)
    if pipeline.dead_letters and pipeline.dead_letters in written:
        spec.problem("deadLetters.topic", f"{pipeline.dead_letters} is the topic of the sink too")
    is_one_query = isinstance(target, TopicSink)
    if pipeline.dead_letters and source.starting_offsets == "latest" and not is_one_query:
        spec.problem(
            "source.startingOffsets",
            "latest does not go with deadLetters unless the sink is a topic: a second query begins at another offset",
        )


def _has_pattern(pattern: str, topic: str) -> bool:
    try:
        return pattern != "" and re.search(pattern, topic) is not None
    except re.error:  # a problem of its own field
        return False


def _check_folders(spec: Fields, pipeline: KafkaPipeline, target: FileSink) -> None:
    """What is written is neither read again nor mixed with the checkpoint."""
    field, path = f"sink.{target.format}.path", target.path
    read = pipeline.source.path if isinstance(pipeline.source, FileSource) else ""
    if read and path and are_one_folder(read, path):
        spec.problem(field, f"{path} is read by this pipeline: it would read what it writes, without an end")
    if path and are_one_folder(path, pipeline.checkpoint):
        spec.problem(field, f"{path} has the checkpoint in it, {pipeline.checkpoint}: readers would take it for rows")
    elif path and is_below(pipeline.checkpoint, path):
        spec.problem(field, f"{path} is in the folder of the checkpoint, {pipeline.checkpoint}")
