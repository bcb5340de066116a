"""Why a broker ends stands where Kubernetes shows it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import typer

from ottla.cli.broker import _serve, run
from ottla_broker.adapters import termination
from ottla_broker.config import BrokerConfig


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "termination-log"
    path.write_text("")
    monkeypatch.setattr(termination, "PATH", path)
    return path


def test_a_configuration_that_is_refused(left: Path, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("zookeeper.connect=h:1\nlog.retention.hours=soon\n")
    with pytest.raises(typer.Exit):
        run(properties)
    assert "log.retention.hours" in left.read_text()


def test_a_start_that_is_refused(left: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = BrokerConfig.from_mapping(
            {
                "zookeeper.connect": "127.0.0.1:1",
                "log.dirs": str(tmp_path / "d0"),
                "ottla.http.listener": f"127.0.0.1:{taken.getsockname()[1]}",
            }
        )
        assert asyncio.run(_serve(config)) == 1
    assert left.read_text().startswith("the broker refuses to start: ottla.http.listener: ")


def test_without_such_a_file_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(termination, "PATH", tmp_path / "none")
    termination.write_reason("over")
    assert not (tmp_path / "none").exists()


def test_a_long_reason_is_cut(left: Path) -> None:
    termination.write_reason("x" * 10_000)
    assert len(left.read_text()) == termination.MAX_BYTES
