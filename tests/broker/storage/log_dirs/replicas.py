"""Directories that fail, are replaced and are reopened, for the tests of this package."""

from __future__ import annotations

import errno
from pathlib import Path

from ottla_broker.storage.log.log import Log
from tests.broker.storage.log_dirs.brokers import BrokerStorage
from tests.broker.storage.logs import batch, read_values, until, written

OTHER_TOPIC_ID = bytes(range(16, 32))


async def write(log: Log, *values: bytes) -> None:
    for value in values:
        log.append_as_leader(batch(value), 0)
    await written(log)


async def values(log: Log) -> list[bytes | None]:
    return [value for _, value in await read_values(log, 0)]


def fail(broker: BrokerStorage, number: int) -> None:
    path = broker.paths[number]
    broker.manager.directory_failed(broker.manager.disk(path), OSError(errno.EIO, "gone", path))


async def reopen(broker: BrokerStorage, number: int) -> None:
    """The directory works again, and the broker reopens it now."""
    reason = await try_to_reopen(broker, number)
    assert not reason, reason


async def try_to_reopen(broker: BrokerStorage, number: int) -> str:
    """As the broker does once no call on the old Disk runs; returns why the directory stays offline, or ""."""
    path = broker.paths[number]
    await until(lambda: broker.manager.disk(path).has_ended)
    return await broker.manager.monitor._try_to_reopen(path)


def names(broker: BrokerStorage, number: int) -> list[str]:
    """The partition directories, without the unique part of a renamed one: `t-0.stray`."""
    found = sorted(path.name for path in Path(broker.paths[number]).iterdir() if path.is_dir())
    return [name.split(".")[0] + "." + name.rsplit("-", 1)[1] if "." in name else name for name in found]


def move_path(source: str | Path, target: str | Path) -> None:
    Path(source).rename(target)


def write_text(path: str | Path, text: str) -> None:
    Path(path).write_text(text)


def take_away(broker: BrokerStorage, number: int) -> None:
    """Takes the directory away from its path until `put_back`."""
    path = broker.paths[number]
    move_path(path, path + "-away")
    write_text(path, "no directory")


def put_back(broker: BrokerStorage, number: int) -> None:
    path = broker.paths[number]
    remove(path)
    move_path(path + "-away", path)


def listed(path: str | Path) -> list[str]:
    return [one.name for one in Path(path).iterdir()]


def remove(path: str | Path) -> None:
    Path(path).unlink()


def make_directory(path: Path) -> None:
    path.mkdir()


def remove_directory(path: Path) -> None:
    path.rmdir()


def exchange_id(path: str | Path) -> str:
    """Writes another directory.id. Returns the one that was there."""
    meta = Path(path, "meta.properties")
    text = meta.read_text()
    before = next(line for line in text.splitlines() if line.startswith("directory.id=")).partition("=")[2]
    meta.write_text(text.replace(before, "A" * 20 + Path(path).name))
    return before
