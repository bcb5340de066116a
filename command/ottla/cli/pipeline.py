"""`ottla pipeline`: runs KafkaPipeline documents on this machine, with Spark in one JVM."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console

from ottla.cli.command_config import CommandConfigOption, read_command_config
from ottla.cli.document_files import read_documents
from ottla.cli.messages import complain, confirm_deletion, fail
from ottla.local.control import ControlError, ask
from ottla.local.secure_files import ADMIN, CLIENTS
from ottla_documents.kafka_pipeline import FAILED_FOR_GOOD, KafkaPipeline, wrong_servers
from ottla_documents.pipeline_sink import FileSink, TopicSink
from ottla_pipeline.compiled.library import description
from ottla_pipeline.errors import PipelineError, SparkEnded
from ottla_pipeline.running.end_status import end_status
from ottla_pipeline.running.failure_reasons import failure_reason
from ottla_pipeline.running.query_options import (
    broker_options,
    session_settings,
    summary,
    with_user_settings,
    wrong_config,
)
from ottla_pipeline.running.run_folder import PLAN_LOG, PipelineRuns, RunFolder, RunFolderError
from ottla_pipeline.running.status_endpoint import StatusEndpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
FLEETS = Path(".ottla")
EXAMPLE = """\
A pipeline is a document:

\b
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: delays}
spec:
  clusterRef: {name: orders}          # or bootstrapServers: HOST:PORT
  source:
    topics: [flights]                 # or pattern, or files
    value: {format: json, schema: "carrier string, arr_delay double"}
  steps:
  - name: late                        # a view; the next step can read it
    sql: >-
      SELECT value.carrier AS key, to_json(value) AS value
      FROM source WHERE value.arr_delay > 15
  sink:
    topic: {name: late-flights}       # or parquet, delta, jdbc
  trigger: {interval: 10s}            # or availableNow: true, or a schedule
  deadLetters: {topic: flights-dead}  # what is not of the schema

\b
ottla pipeline validate -f FILE   says what is wrong, without Spark
ottla pipeline plan -f FILE       what Spark will do, and what is written
ottla pipeline run -f FILE        runs it here, until SIGTERM or Ctrl-C
ottla pipeline status -f FILE     rates, lag, watermark, the last error
ottla pipeline reset -f FILE      deletes the offsets and the state
"""

FileOption = Annotated[
    list[Path], typer.Option("-f", "--file", metavar="FILE", help="KafkaPipeline documents; may be repeated.")
]
ENDED_BY_SIGNAL = 128 + signal.SIGTERM
"""The exit code of a run that would have ended by itself and was ended by a signal: it has not read all."""
NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Which pipeline, when the files have several.")]
BootstrapOption = Annotated[
    str, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="Instead of what the document names.")
]
MasterOption = Annotated[str, typer.Option("--master", metavar="MASTER", help="Where Spark runs its tasks.")]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark, such as spark.jars; may be repeated."),
]


@app.callback(epilog=EXAMPLE)
def _group() -> None:
    """Run Spark pipelines from documents, on this machine."""


@app.command()
def validate(file: FileOption) -> None:
    """Says what is wrong in the documents, field by field. Needs neither Spark nor brokers."""
    for pipeline in _load(file):
        _say(f"{pipeline.name}: {summary(pipeline)}")


@app.command()
def run(
    file: FileOption,
    name: NameOption = "",
    bootstrap_servers: BootstrapOption = "",
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    command_config: CommandConfigOption = None,
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Read what is there now and end, whatever the trigger says."),
    ] = False,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Answer /status, /metrics, /livez and /readyz there.")
    ] = "",
    stay: Annotated[
        bool, typer.Option("--stay", help="After a failure for good answer --http until SIGTERM, instead of ending.")
    ] = False,
    end_status_file: Annotated[
        Path | None,
        typer.Option("--end-status", metavar="FILE", help="Write the last status there, as one line of JSON."),
    ] = None,
) -> None:
    """Runs a pipeline here until it has ended, SIGTERM or Ctrl-C, which end it after the batch that is under way.

    The next run goes on where this one has ended. Exit code 3 when it fails and would fail again, 1 when something else
    has ended it, 143 when a signal has ended a run with availableNow before all was read.
    """
    asked_to_end = threading.Event()
    with _for_good():
        pipeline = _one(file, name)
        if pipeline.is_suspended:
            _say(f"{pipeline.name}: spec.suspend is true, nothing is run")
            return
        if pipeline.executors is not None:
            _say(f"{pipeline.name}: spec.executors is for Kubernetes and has no effect here: Spark runs with {master}")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: asked_to_end.set())
        security = read_command_config(command_config) or pipeline.client_config
        brokers = broker_options(_bootstrap(pipeline, bootstrap_servers, security), security)
        if stay and not http:
            fail("--stay goes with --http")
        if end_status_file is not None and not end_status_file.parent.is_dir():
            fail(f"--end-status {end_status_file}: there is no folder {end_status_file.parent}")
        _require_spark()
    folder = RunFolder(pipeline)
    exit_code = 0
    try:
        with folder.locked(), contextlib.ExitStack() as stack:
            from ottla_pipeline.running.runner import PipelineRun

            one = PipelineRun(pipeline, brokers, folder, is_once=available_now, is_asked_to_end=asked_to_end, say=_say)
            if http:
                stack.enter_context(StatusEndpoint(http, one.status))
            try:
                one.report("Starting")
                spark = _open_spark(pipeline, master, file, conf)
                _say(f"{pipeline.name}: {description()}")
                signal.signal(signal.SIGINT, lambda _number, _frame: asked_to_end.set())  # Spark has set its own
                try:
                    exit_code = 0 if one.run(spark) else FAILED_FOR_GOOD
                finally:
                    spark.stop()
            except Exception as error:
                told = _told(error)
                if asked_to_end.is_set() and isinstance(told, SparkEnded):
                    one.report("Stopped")  # whoever ends this process has ended Spark too
                else:
                    is_for_good = isinstance(told, PipelineError) and not isinstance(told, SparkEnded)
                    exit_code, message = (FAILED_FOR_GOOD, str(told)) if is_for_good else (1, _to_be_restarted(told))
                    with contextlib.suppress(OSError):
                        one.report("Failed", lastError=message, reason="", hasBegun=not is_for_good)
                    complain(message)
            finally:
                if end_status_file is not None:
                    end_status_file.write_text(end_status(one.status()), encoding="utf-8")
            if stay and exit_code == FAILED_FOR_GOOD:
                _say(f"{pipeline.name}: it has failed, and ends with SIGTERM")
                asked_to_end.wait()
    except PipelineRuns as error:
        fail(str(error))
    except PipelineError as error:
        fail(str(error), FAILED_FOR_GOOD)
    if exit_code:
        raise typer.Exit(exit_code)
    is_finite = available_now or (pipeline.trigger.is_available_now and not pipeline.trigger.schedule)
    if is_finite and asked_to_end.is_set() and one.status()["phase"] == "Stopped":
        raise typer.Exit(ENDED_BY_SIGNAL)


@app.command()
def status(
    file: FileOption,
    name: NameOption = "",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="json|table", help="For programs, or for people.")
    ] = "table",
) -> None:
    """Shows whether a pipeline runs, its rates, lag by partition, watermark, last batch and last error."""
    if output not in ("json", "table"):
        fail(f"-o takes json or table, not {output!r}")
    pipeline = _one(file, name)
    folder = RunFolder(pipeline)
    try:
        found = folder.status()
    except RunFolderError as error:
        fail(str(error))
    is_running = folder.is_locked()
    if found is None:
        found = {"pipeline": pipeline.name, "phase": "Starting" if is_running else "Pending", "queries": {}}
    elif not is_running and found.get("phase") in ("Starting", "Running", "Waiting", "Restarting"):
        found |= {"phase": "Failed", "lastError": found.get("lastError") or "its process was killed"}
    if output == "json":
        sys.stdout.write(json.dumps(found) + "\n")
        return
    _print_status(found)


@app.command()
def reset(
    file: FileOption,
    name: NameOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Deletes the offsets and the state of a pipeline: its next run begins at spec.source.startingOffsets.

    What it has written stays, and is written again. Refused while the pipeline runs.
    """
    pipeline = _one(file, name)
    folder = RunFolder(pipeline)
    if not folder.path.exists():
        _say(f"{pipeline.name}: it has never run with {folder.path}, there is nothing to delete")
        return
    try:
        with folder.locked():
            paths = folder.to_delete()
            if not paths:
                _say(f"{pipeline.name}: there is nothing to delete in {folder.path}")
                return
            _say("\n".join([f"{pipeline.name}: this is deleted:", *(f"  {path}" for path in paths)]))
            target = pipeline.sink.target
            if isinstance(target, TopicSink):
                written = f"topic {target.topic}"
            else:
                written = target.path if isinstance(target, FileSink) else f"table {target.table}"
            _say(f"what is in {written} stays; the next run reads from the beginning, and writes it again")
            confirm_deletion("delete it?", yes, "nothing is deleted")
            folder.reset()
            _say(f"{pipeline.name}: deleted")
    except RunFolderError as error:
        fail(str(error))


@app.command()
def plan(
    file: FileOption,
    name: NameOption = "",
    bootstrap_servers: BootstrapOption = "",
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Shows the columns of each view, Spark's analyzed plan, and where rows go. No record is read or written.

    What Java prints and Python warns of meanwhile is in the file plan.log in the folder of the checkpoint.
    """
    pipeline = _one(file, name)
    if bootstrap_servers and (wrong := wrong_servers(bootstrap_servers)):
        fail(f"--bootstrap-servers: {wrong}")
    bootstrap = bootstrap_servers or pipeline.bootstrap_servers or "127.0.0.1:9092"
    brokers = broker_options(bootstrap, read_command_config(command_config) or pipeline.client_config)
    _require_spark()
    spark = None
    try:
        # Where nobody looks at a terminal, the spinner is not there.
        with Console(stderr=True).status("Spark starts, and plans the pipeline"), _plan_log(pipeline) as log:
            spark = _open_spark(pipeline, master, file, conf, log)
            from ottla_pipeline.running.frames import build_frames

            with _one_line():
                frames = build_frames(spark, pipeline, brokers)
        _say(summary(pipeline))
        _say(description())
        for view in ("source", *(step.name for step in pipeline.steps)):
            _say(f"view {view}: {frames.views[view.lower()].schema.simpleString()}")
        if frames.has_dead_letters:
            _say(f"dead letters to topic {pipeline.dead_letters}")
        if isinstance(pipeline.sink.target, TopicSink) and not frames.result.columns:
            fail("spec.sink.from: the view has no columns")
        sys.stdout.flush()
        print(frames.result._jdf.queryExecution().analyzed().toString())
    except PipelineError as error:
        fail(str(error))
    finally:
        if spark is not None:
            spark.stop()


@contextlib.contextmanager
def _plan_log(pipeline: KafkaPipeline) -> Iterator[IO[bytes]]:
    """A file for what Java prints and Python warns of beside a plan; nowhere, where the folder cannot be written."""
    folder = RunFolder(pipeline).path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = (folder / PLAN_LOG).open("wb", buffering=0)
    except OSError:
        log = open(os.devnull, "wb", buffering=0)  # noqa: SIM115 (closed below)

    def write(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        log.write(warnings.formatwarning(message, category, filename, lineno, line).encode())

    with log, warnings.catch_warnings():
        warnings.showwarning = write
        yield log


def _load(files: list[Path]) -> tuple[KafkaPipeline, ...]:
    documents = read_documents(files)
    if not documents.pipelines:
        other = "; a KafkaCluster runs with `ottla local up -f FILE`" if documents.clusters else ""
        fail(f"no KafkaPipeline in {', '.join(map(str, files))}{other}")
    wrong = [
        f"{pipeline.name}: {problem}"
        for pipeline in documents.pipelines
        if isinstance(pipeline.sink.target, TopicSink) and (problem := wrong_config(pipeline.sink.target))
    ]
    if wrong:
        fail("\n".join(wrong))
    return documents.pipelines


def _one(files: list[Path], name: str) -> KafkaPipeline:
    pipelines = _load(files)
    names = ", ".join(pipeline.name for pipeline in pipelines)
    matching = [pipeline for pipeline in pipelines if not name or pipeline.name == name]
    if not matching:
        fail(f"--name {name}: there are {names}")
    if len(matching) > 1:
        fail(f"which pipeline? choose with --name: {names}")
    return matching[0]


def _bootstrap(pipeline: KafkaPipeline, given: str, security: Mapping[str, str]) -> str:
    """The address of the brokers: as given, as the document says, or of the local fleet of that name.

    Args:
        security: the keys that say how brokers are reached.
    """
    if given and (wrong := wrong_servers(given)):
        fail(f"--bootstrap-servers: {wrong}")
    if given or pipeline.bootstrap_servers or not pipeline.has_topics:
        return given or pipeline.bootstrap_servers
    directory = (FLEETS / pipeline.cluster).absolute()
    try:
        found = ask(directory, {"command": "status"})
    except ControlError as error:
        fail(
            f"spec.clusterRef.name {pipeline.cluster}: {error}; start the fleet here with `ottla local up`, or name "
            "its brokers with --bootstrap-servers HOST:PORT"
        )
    if found.get("secure", False) and not security:
        path = shlex.quote(str(FLEETS / pipeline.cluster / CLIENTS / f"{ADMIN}.properties"))
        fail(f"spec.clusterRef.name {pipeline.cluster}: the fleet is secure: add --command-config {path}")
    return str(found["bootstrap"])


def _require_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{', '.join(missing)} is not installed: pip install 'ottla[pipeline]'")
    if shutil.which("java") is None:
        fail("Java 17 or later is missing: apt-get install openjdk-17-jre-headless")


@contextlib.contextmanager
def _for_good() -> Iterator[None]:
    """What `_fail` says in here, another run would say again."""
    try:
        yield
    except typer.Exit:
        raise typer.Exit(FAILED_FOR_GOOD) from None


def _told(error: Exception) -> Exception:
    """What Spark has raised as a PipelineError; any other exception itself."""
    from ottla_pipeline.running.spark_errors import SPARK_ERRORS, has_ended, pipeline_error

    return pipeline_error(error) if isinstance(error, SPARK_ERRORS) or has_ended(error) else error


def _to_be_restarted(error: Exception) -> str:
    """What has ended a run besides its own failures, in one line, and what to do."""
    kind = "" if isinstance(error, PipelineError) else f"{type(error).__name__}: "
    return f"{kind}{failure_reason(str(error))}; run the pipeline again, it goes on from its checkpoint"


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """What Spark raises, for a setting or a master that it does not take and for what nobody has foreseen, in one line.

    Raises PipelineError.
    """
    from ottla_pipeline.running.spark_errors import SPARK_ERRORS, pipeline_error

    try:
        yield
    except SPARK_ERRORS as error:
        raise pipeline_error(error) from None


def _open_spark(
    pipeline: KafkaPipeline, master: str, files: list[Path], conf: list[str] | None, log: IO[bytes] | None = None
) -> SparkSession:
    """Raises PipelineError: what the document needs is not there. `log`: for what Java prints."""
    from ottla_pipeline.running.session import open_session

    folder = RunFolder(pipeline).path
    modules = [*(path.parent for path in files), Path.cwd()]
    settings = with_user_settings(session_settings(pipeline.name, master, folder, pipeline.sink), conf or [])
    try:
        with _one_line():
            return open_session(settings, modules, log)
    except PipelineError as error:
        given = " ".join(["--master", master, *(f"--conf {one}" for one in conf or [])])
        kind = SparkEnded if isinstance(error, SparkEnded) else PipelineError
        raise kind(f"Spark does not start with {given}: {error}") from None


def _print_status(status: dict[str, Any]) -> None:
    _say(f"{status['pipeline']}: {status['phase']}")
    for name in ("pid", "startTime", "updateTime", "nextRunTime", "restarts", "reason", "lastError"):
        if status.get(name):
            _say(f"  {name}: {status[name]}")
    for query, one in status.get("queries", {}).items():
        _say(f"  query {query}: batch {one['lastBatchId']} at {one['lastBatchTime']}, {one['numInputRows']} rows")
        _say(f"    in {one['inputRowsPerSecond']:.1f} rows/s, processed {one['processedRowsPerSecond']:.1f} rows/s")
        if one["watermark"]:
            _say(f"    watermark {one['watermark']}, {one['stateRows']} rows of state")
        for topic, partitions in one["lag"].items():
            by_partition = ", ".join(f"{number}: {lag}" for number, lag in partitions.items())
            _say(f"    lag of {topic}: {sum(partitions.values())} ({by_partition})")


def _say(line: str) -> None:
    print(line, flush=True)
