"""KafkaPipeline as a value: a Spark query from a source through steps to a sink.

`ottla pipeline` runs it on one machine, the operator on Kubernetes. Nothing here needs Spark: what only Spark knows,
such as the columns of a view, is checked when the pipeline is planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from ottla_broker.security.client_login import SECRET_LOGIN_KEYS
from ottla_broker.security.client_settings import (
    KEYS,
    PROTOCOL,
    client_security,
    is_security_key,
    nearest,
)
from ottla_broker.security.tls_settings import TlsError
from ottla_documents.document_root import read_root
from ottla_documents.durations import FORM, duration_ms
from ottla_documents.executors import Executors, memory_problems
from ottla_documents.field_types import LABEL_FORM, ClusterName, Config, Image, Quantity, StorageClassName
from ottla_documents.maintenance_windows import DEFAULT_TIME_ZONE, is_time_zone, wrong_schedule
from ottla_documents.pipeline_sink import (
    DeadLettersDocument,
    FileSink,
    Sink,
    SinkDocument,
    TopicSink,
    sink_declared,
)
from ottla_documents.pipeline_source import (
    FileSource,
    Folder,
    Source,
    SourceDocument,
    TopicSource,
    are_one_folder,
    folder_problem,
    is_below,
    pattern_problem,
)
from ottla_documents.pipeline_steps import SOURCE_VIEW, Step, StepDocument, Views, steps_declared
from ottla_documents.resources import Resources
from ottla_documents.schema.marks import Items, Named, Problem, Text, WholeNumber
from ottla_documents.secret_keys import without_secrets

PIPELINE_NAME = Text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", f"{LABEL_FORM}, at most 63")
FAILED_FOR_GOOD = 3
"""Exit code of `ottla pipeline run` after a failure that another run would repeat. Python itself ends with 1, a command
line with a wrong option with 2."""
DEFAULT_DRIVER_RESOURCES = Resources({"cpu": "1", "memory": "2Gi"}, {})
DEFAULT_CLAIM_SIZE = "1Gi"
READ_WRITE_MANY = "ReadWriteMany"
AccessMode = Literal["ReadWriteOnce", "ReadWriteMany"]
PipelineClaimPolicy = Literal["Retain", "Delete"]
DurationText: TypeAlias = Annotated[str, Text(most=32)]
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
    deletion_policy: str = "Retain"
    access_modes: tuple[str, ...] = ("ReadWriteOnce",)


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
    client_config: Mapping[str, str] = field(default_factory=dict)
    """How brokers are reached: keys of Kafka's clients."""
    restart_policy: str = "OnFailure"
    backoff_limit: int = 6
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


@dataclass(frozen=True, slots=True)
class PipelineClusterReference:
    """The KafkaCluster whose topics are read and written. Required, or bootstrapServers, where there are topics."""

    name: ClusterName
    """The name of the KafkaCluster, in the namespace of this KafkaPipeline."""


@dataclass(frozen=True, slots=True)
class TriggerDocument:
    """When a batch begins. Default: when the one before has ended."""

    interval: DurationText | None = None
    """The time from the beginning of a batch to that of the next one, such as 10s."""
    available_now: bool = False
    """Read what is there once, in a Job. A change of the document, or a deletion of the Job, reads what has come
    since."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.interval is not None and (wrong := _duration_problem(self.interval)):
            yield "interval", wrong
        if self.interval is not None and self.available_now:
            yield "availableNow", "does not go with interval: one run reads what is there and ends"


@dataclass(frozen=True, slots=True)
class WatermarkDocument:
    """How late a row of a view may be."""

    column: Annotated[str, Text(least=1, most=255)]
    """The column with the time of the row."""
    delay: DurationText
    """How late, such as 10m."""
    from_: Annotated[str, Text(most=128)] = SOURCE_VIEW
    """The view."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if wrong := _duration_problem(self.delay):
            yield "delay", wrong


@dataclass(frozen=True, slots=True)
class CheckpointDocument:
    """Where offsets and state are kept, on a PersistentVolumeClaim of the pipeline."""

    path: Folder | None = None
    """A folder of the claim, relative to its root. Default: .ottla/pipelines/NAME."""
    size: Quantity = DEFAULT_CLAIM_SIZE
    """The size of the claim. A larger size makes the volume larger where its class allows that; a smaller one is
    refused."""
    storage_class_name: StorageClassName = ""
    """The StorageClass of the claim. Default: the default class of the Kubernetes cluster. An existing claim keeps its
    class."""
    access_modes: Annotated[tuple[AccessMode, ...], Items(least=1, most=2)] = ("ReadWriteOnce",)
    """The access modes of the claim. Default: ReadWriteOnce, for pods of one node. executors need ReadWriteMany, which
    the StorageClass has to support. An existing claim keeps its modes."""
    claim_deletion_policy: PipelineClaimPolicy = "Retain"
    """What happens to the claim when this KafkaPipeline is deleted. Retain: it stays, and a KafkaPipeline of this name
    goes on from its checkpoint. Delete: it is deleted."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.path is not None and (wrong := folder_problem(self.path)):
            yield "path", wrong

    @property
    def claim(self) -> CheckpointClaim:
        modes = self.access_modes or ("ReadWriteOnce",)
        return CheckpointClaim(self.size, self.storage_class_name, self.claim_deletion_policy, modes)


@dataclass(frozen=True, slots=True)
class KafkaPipelineDocument:
    """The pipeline. A change restarts the driver, which goes on from the checkpoint. While a field has a value that
    cannot be used, what runs goes on as it is, and the condition Valid names the field."""

    source: SourceDocument
    sink: SinkDocument
    cluster_ref: PipelineClusterReference | None = None
    bootstrap_servers: Annotated[str | None, Text(least=1, most=4096)] = None
    """Brokers in place of clusterRef, as HOST:PORT,HOST:PORT."""
    client_config: Config = field(default_factory=dict)
    """How the brokers are reached, for source, sink and dead letters: security.protocol (PLAINTEXT or SSL) and ssl.*,
    with the names of Kafka's Java clients or of librdkafka. Stores are files that driver and executors have. Default:
    PLAINTEXT."""
    steps: Annotated[tuple[StepDocument, ...], Items(most=100, key="name", keeps_places=True)] = ()
    """Each makes a view, which later steps and the sink can read."""
    trigger: TriggerDocument = TriggerDocument()
    schedule: Annotated[str | None, Text(least=1, most=256)] = None
    """Read what is there at these times, by a CronJob that runs one at a time: five fields as cron has them."""
    time_zone: Annotated[str | None, Text(most=64)] = None
    """The time zone of schedule, by its IANA name. Default: Etc/UTC."""
    watermark: WatermarkDocument | None = None
    checkpoint: CheckpointDocument = CheckpointDocument()
    dead_letters: DeadLettersDocument | None = None
    restart_policy: Literal["OnFailure", "Never"] = "OnFailure"
    """Whether a query that has failed is tried again, after 10 s, then 20 s, up to five minutes. A driver process that
    ends otherwise, such as without memory, is restarted by Kubernetes, in a Job only with OnFailure."""
    backoff_limit: Annotated[int, WholeNumber(0)] = 6
    """How many times in a row it is tried again, by default as often as a Job of Kubernetes. After ten minutes without
    a failure the count starts from 0."""
    is_suspended: Annotated[bool, Named("suspend")] = False
    """Stops the driver after the batch that is under way and keeps the checkpoint."""
    image: Image = ""
    """The image of the driver: ottla with Spark and Java, and the modules of python steps. Default: that of the
    operator (values pipeline.image); required where it has none."""
    resources: Resources = DEFAULT_DRIVER_RESOURCES
    """CPU and memory of the driver, as in a pod. Default: requests of 1 CPU and 2Gi memory, no limits. A value replaces
    the whole default. Spark has as many threads as the limit, or else the request, of cpu, rounded up, and half of the
    memory as its heap."""
    executors: Executors | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.bootstrap_servers is not None:
            if self.cluster_ref is not None:
                yield "bootstrapServers", "does not go with clusterRef, which names the brokers too"
            if wrong := wrong_servers(self.bootstrap_servers):
                yield "bootstrapServers", wrong
        if self.schedule is not None:
            if wrong := wrong_schedule(self.schedule) or _not_of_cron_jobs(self.schedule):
                yield "schedule", f"{self.schedule!r} is no schedule of five fields as cron has them: {wrong}"
            if self.trigger.interval is not None:
                yield "schedule", "does not go with trigger.interval: each of its times reads what is there"
            if not is_time_zone(self.time_zone or DEFAULT_TIME_ZONE):
                yield "timeZone", f"{self.time_zone!r} is no time zone of the IANA data base, such as Europe/Berlin"
        elif self.time_zone is not None:
            yield "timeZone", "goes with schedule"
        yield from memory_problems(self.resources)


def parse_pipeline(document: Mapping[str, Any]) -> tuple[KafkaPipeline, list[Problem]]:
    """Reads a KafkaPipeline document (apiVersion and kind are not checked).

    Returns:
        The pipeline, with a default in place of each wrong value, and the problems by field.
    """
    problems: list[Problem] = []
    root = read_root(document, KafkaPipelineDocument, PIPELINE_NAME, problems)
    spec = root.spec
    steps, views = steps_declared(spec.steps, "spec.steps", problems)
    checkpoint = spec.checkpoint
    pipeline = KafkaPipeline(
        name=root.name,
        namespace=root.namespace,
        cluster="" if spec.cluster_ref is None else spec.cluster_ref.name,
        bootstrap_servers=spec.bootstrap_servers or "",
        source=spec.source.source,
        steps=steps,
        sink=sink_declared(spec.sink, "spec.sink", views, problems),
        trigger=_trigger(spec),
        watermark=_watermark(spec.watermark, views, problems),
        checkpoint=f".ottla/pipelines/{root.name}" if checkpoint.path is None else checkpoint.path,
        dead_letters="" if spec.dead_letters is None else spec.dead_letters.topic,
        client_config=_client_config(spec.client_config, problems),
        restart_policy=spec.restart_policy,
        backoff_limit=spec.backoff_limit,
        is_suspended=spec.is_suspended,
        resources=spec.resources,
        executors=spec.executors,
        image=spec.image,
        claim=checkpoint.claim,
    )
    wrong = tuple(problem.path for problem in problems)
    problems += [
        Problem(f"spec.{field}", message)
        for field, message in _joint_problems(spec, pipeline)
        if not any(path.startswith((f"spec.{field}.", f"spec.{field}[")) or path == f"spec.{field}" for path in wrong)
    ]
    return pipeline, problems


def _client_config(config: Mapping[str, str], problems: list[Problem]) -> dict[str, str]:
    path = "spec.clientConfig"
    kept = without_secrets(config, path, "spec.clientConfigSecrets", problems)
    for key in [key for key in kept if not is_security_key(key)]:
        del kept[key]
        problems.append(Problem(f"{path}.{key}", f"is none of {PROTOCOL}, ssl.* and sasl.*{nearest(key, KEYS)}"))
    if len(kept) == len(config):  # else what is left may lack what was refused
        try:
            client_security(kept)
        except TlsError as error:
            is_login = error.key in SECRET_LOGIN_KEYS
            reason = "a login needs a password, for which documents have no field yet" if is_login else error.reason
            problems.append(Problem(f"{path}.{error.key}", reason))
    return kept


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


def _trigger(spec: KafkaPipelineDocument) -> Trigger:
    if spec.schedule is not None:
        return Trigger(is_available_now=True, schedule=spec.schedule, time_zone=spec.time_zone or DEFAULT_TIME_ZONE)
    return Trigger(_milliseconds(spec.trigger.interval or ""), spec.trigger.available_now)


def _not_of_cron_jobs(schedule: str) -> str:
    """What a CronJob of Kubernetes does not take of a schedule that names some time.

    Source: the parser of github.com/robfig/cron that its API server has.

    >>> _not_of_cron_jobs("0 0 * * mon-fri"), _not_of_cron_jobs("0 0 L * *")[:19]
    ('', 'CronJobs take no L ')
    """
    _, _, days, _, weekdays = schedule.split()
    is_taken = _DAYS.fullmatch(days) and _WEEKDAYS.fullmatch(weekdays)
    return "" if is_taken else "CronJobs take no L and no #, and Sunday is 0 and not 7"


def _duration_problem(text: str) -> str:
    try:
        found = duration_ms(text)
    except ValueError:
        return f"must be {FORM}, not {text!r}"
    return f"must be at most a year, not {text}" if found > _LONGEST_MS else ""


def _milliseconds(text: str) -> int:
    """The milliseconds of a duration; 0 for a text that is none, which is reported."""
    try:
        return duration_ms(text)
    except ValueError:
        return 0


def _watermark(document: WatermarkDocument | None, views: Views, problems: list[Problem]) -> EventTimeWatermark | None:
    if document is None:
        return None
    view = document.from_ or SOURCE_VIEW
    views.check("spec.watermark.from", view, problems)
    return EventTimeWatermark(view, document.column, _milliseconds(document.delay))


def _joint_problems(spec: KafkaPipelineDocument, pipeline: KafkaPipeline) -> Iterator[tuple[str, str]]:
    """What no field says by itself: the name of a field below spec, and what is wrong."""
    has_topics = spec.source.has_topics or spec.sink.topic is not None or spec.dead_letters is not None
    if has_topics and spec.cluster_ref is None and spec.bootstrap_servers is None:
        yield "clusterRef", "is required where topics are read or written, or bootstrapServers"
    if spec.client_config and not has_topics:
        yield "clientConfig", "goes with topics, which are not read or written here"
    if pipeline.executors is not None and READ_WRITE_MANY not in pipeline.claim.access_modes:
        message = (
            f"must have {READ_WRITE_MANY} with executors, which write state and rows to the claim from other nodes; "
            "its StorageClass has to support that"
        )
        yield "checkpoint.accessModes", message
    source, target = pipeline.source, pipeline.sink.target
    if isinstance(target, FileSink):
        yield from _folder_problems(pipeline, target)
    if not isinstance(source, TopicSource):
        return
    if source.is_table and pipeline.sink.output_mode == "append":
        mode = "append does not go with source.table, whose rows change; choose update, or complete for all rows again"
        yield "sink.outputMode", mode
    written = {target.topic} - {""} if isinstance(target, TopicSink) else set()
    for place, topics in (("sink.topic.name", written), ("deadLetters.topic", {pipeline.dead_letters} - {""})):
        for topic in topics & set(source.topics):
            yield place, f"{topic} is read by this pipeline: it would read what it writes, without an end"
        for topic in topics:
            if _has_pattern(source.pattern, topic):
                problem = f"{topic} is read by this pipeline, whose pattern is in it: it would read what it writes"
                yield place, problem
    if pipeline.dead_letters and pipeline.dead_letters in written:
        yield "deadLetters.topic", f"{pipeline.dead_letters} is the topic of the sink too"
    is_one_query = isinstance(target, TopicSink)
    if pipeline.dead_letters and source.starting_offsets == "latest" and not is_one_query:
        yield (
            "source.startingOffsets",
            "latest does not go with deadLetters unless the sink is a topic: a second query begins at another offset",
        )


def _has_pattern(pattern: str, topic: str) -> bool:
    """Whether a pattern is found in a topic; False for one that is no regular expression, a problem of its own."""
    return pattern != "" and not pattern_problem(pattern) and re.search(pattern, topic) is not None


def _folder_problems(pipeline: KafkaPipeline, target: FileSink) -> Iterator[tuple[str, str]]:
    """What is written is neither read again nor mixed with the checkpoint."""
    field, path = f"sink.{target.format}.path", target.path
    read = pipeline.source.path if isinstance(pipeline.source, FileSource) else ""
    if read and path and are_one_folder(read, path):
        yield field, f"{path} is read by this pipeline: it would read what it writes, without an end"
    if path and are_one_folder(path, pipeline.checkpoint):
        yield field, f"{path} has the checkpoint in it, {pipeline.checkpoint}: readers would take it for rows"
    elif path and is_below(pipeline.checkpoint, path):
        yield field, f"{path} is in the folder of the checkpoint, {pipeline.checkpoint}"
