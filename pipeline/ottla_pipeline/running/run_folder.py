"""The folder of spec.checkpoint.path: Spark's checkpoints, the status file, and the lock of the process that runs.

query/          the checkpoint of the pipeline's query
dead-letters/   that of the second query, where a sink of files has dead letters
status.json     what `ottla pipeline status` shows
run.lock        locked while a process runs the pipeline
plan.log        what Java has printed beside the last plan
spool/          what tasks in executors leave for the driver, until their batch has ended
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_documents.pipeline_sink import FileSink
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.sink.checkpoint import age_of_batch
from ottla_pipeline.sink.marker import LEAST_KEPT_MS

STATUS_FILE = "status.json"
PLAN_LOG = "plan.log"
FILE_LOG = "_spark_metadata"
"""Says which files of a folder of Parquet files belong to which batch."""


class RunFolderError(PipelineError):
    """The folder is in use, belongs to another pipeline, or cannot be written."""


class PipelineRuns(RunFolderError):
    """Another process runs the pipeline in the folder."""


class RunFolder:
    """The folder of one pipeline."""

    def __init__(self, pipeline: KafkaPipeline) -> None:
        self.path = Path(pipeline.checkpoint)
        self.query = self.path / "query"
        self.dead_letters = self.path / "dead-letters"
        self.spool = self.path / "spool"
        self._owner = {"namespace": pipeline.namespace, "pipeline": pipeline.name}
        target = pipeline.sink.target
        self._file_log: Path | None = None
        if isinstance(target, FileSink) and target.format == "parquet":  # Delta's log knows queries by their id
            self._file_log = Path(target.path) / FILE_LOG

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder for this process. RunFolderError when another one runs, or it is another pipeline's."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "run.lock").open("a")
        except OSError as error:
            raise RunFolderError(f"spec.checkpoint.path {self.path}: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineRuns(
                    f"the pipeline {self._owner['pipeline']} is running, with {self.path}; end it with SIGTERM"
                ) from None
            self._check_owner()
            yield

    def is_locked(self) -> bool:
        """Whether a process runs the pipeline now."""
        try:
            with (self.path / "run.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def query_id(self) -> str:
        """Spark's id of the query, which it has kept in the checkpoint since the first start."""
        return str(json.loads((self.query / "metadata").read_text())["id"])

    def check_checkpoint(self) -> None:
        """RunFolderError where the checkpoint that is there cannot be read."""
        try:
            self.query_id()
        except FileNotFoundError:
            return  # the first start
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"spec.checkpoint.path: {self.query / 'metadata'} is none of Spark's: {error}; restore the folder, or "
                "forget what was read with `ottla pipeline reset`"
            ) from None

    def status(self) -> dict[str, Any] | None:
        """What the last run has written; None when there was none. RunFolderError for a file that is no status."""
        try:
            found = json.loads((self.path / STATUS_FILE).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.path / STATUS_FILE}: {error}") from None
        if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("pipeline", "phase")):
            raise RunFolderError(f"{self.path / STATUS_FILE} is no status of a pipeline")
        return found

    def named(self, status: dict[str, Any]) -> dict[str, Any]:
        """A status with the namespace and the name of its pipeline."""
        return self._owner | status

    def write_status(self, status: dict[str, Any]) -> None:
        """Replaces the file in one step, so that readers see the old one or the new one."""
        written = self.path / f"{STATUS_FILE}.new"
        written.write_text(json.dumps(self.named(status), indent=1) + "\n")
        os.replace(written, self.path / STATUS_FILE)

    def empty_spool(self) -> Path:
        """The folder for what tasks leave for the driver, without what the executors of another run have left.

        The caller has the lock. What cannot be deleted stays: the names of new files differ. RunFolderError when the
        folder cannot be made.
        """
        try:
            self.spool.mkdir(exist_ok=True)
            for file in self.spool.iterdir():
                with contextlib.suppress(OSError):
                    file.unlink()
        except OSError as error:
            raise RunFolderError(f"{error.filename}: {error.strerror}") from None
        return self.spool.absolute()

    def forgotten_files(self) -> Path | None:
        """The log of a sink of files that knows a later batch than the checkpoint; None when there is none.

        Spark leaves out each batch up to the last one of that log: rows would be lost without a word.
        """
        if self._file_log is None or _last_batch(self._file_log) <= _last_batch(self.query / "offsets"):
            return None
        return self._file_log

    def to_delete(self) -> list[Path]:
        """What `reset` deletes, of what is there."""
        paths = [self.query, self.dead_letters, self.path / STATUS_FILE, self.spool]
        if self._file_log is not None:
            paths.append(self._file_log)
        return [path for path in paths if path.exists()]

    def reset(self) -> list[Path]:
        """Deletes it; the caller has the lock. Returns what is deleted."""
        deleted = self.to_delete()
        for path in deleted:
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except OSError as error:
                raise RunFolderError(f"{error.filename}: {error.strerror}; the reset is not complete") from None
        return deleted

    def _check_owner(self) -> None:
        status = self.status()
        if status is None:
            return
        owner = {name: status.get(name) for name in self._owner}
        if owner != self._owner:
            raise RunFolderError(
                f"spec.checkpoint.path {self.path} is the folder of the pipeline {owner['namespace']}/"
                f"{owner['pipeline']}: each pipeline needs its own"
            )


def first_new_batch(checkpoint: Path, now_s: float) -> int:
    """The first batch of a query that was certainly not written before, whatever brokers keep; see `sink.marker`.

    Spark writes the offsets of a batch into its checkpoint before it runs the batch. A batch that the checkpoint does
    not have was therefore never run. The last one that it has may have been, and may have left a marker: of one that is
    young its marker would still be there. Of one that is older the sink asks the brokers.
    """
    last = _last_batch(checkpoint / "offsets")
    if last < 0:
        return 0
    age_ms = age_of_batch(str(checkpoint), last, int(now_s * 1000))
    return last if age_ms is not None and age_ms < LEAST_KEPT_MS // 2 else last + 1


def _last_batch(log: Path) -> int:
    """The last batch in one of Spark's logs, each in a file of its number; -1 where there is none.

    Source: HDFSMetadataLog, and CompactibleFileStreamLog, whose files also end in `.compact`.
    """
    try:
        names = [file.name.removesuffix(".compact") for file in log.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)
