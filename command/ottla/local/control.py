"""The control socket of a local fleet: one JSON request per line, one JSON response per line.

It is a UNIX socket in the data directory. The address goes through /proc/self/fd, because the path may exceed the limit
of 108 bytes for a socket address. Only the user who started the fleet can open it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SOCKET_NAME = "control.sock"
IS_LOCKED = 75
"""The exit status of the daemon when another one runs a fleet in the data directory."""

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlError(Exception):
    """The fleet rejected a command; the message gives the reason."""


class NotRunning(ControlError):
    """No fleet runs in the data directory."""


class ControlServer:
    """Serves requests with `handler`. An exception becomes the response `{"error": message}`."""

    def __init__(self, data: Path, handler: Handler) -> None:
        self._data = data
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens. The caller has the lock of the data directory, so an existing socket file is not in use."""
        path = self._data / SOCKET_NAME
        path.unlink(missing_ok=True)
        directory = os.open(self._data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            old_mask = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(
                    self._serve, f"/proc/self/fd/{directory}/{SOCKET_NAME}", limit=1 << 20
                )
            finally:
                os.umask(old_mask)
        finally:
            os.close(directory)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        (self._data / SOCKET_NAME).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                try:
                    answer = await self._handler(json.loads(line))
                except ControlError as error:
                    answer = {"error": str(error)}
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass  # the client disconnected, or the fleet stops (asyncio's streams would log the cancellation)
        finally:
            writer.close()


def ask(data: Path, request: dict[str, Any], *, timeout_s: float = 60.0) -> dict[str, Any]:
    """Sends one command to the fleet in `data` and returns the response.

    Raises:
        NotRunning: no fleet runs there.
        ControlError: the fleet rejected the command or did not respond within `timeout_s` seconds.
    """
    try:
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise NotRunning(f"there is no fleet in {data}: {error.strerror}") from None
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            try:
                connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            except (FileNotFoundError, ConnectionRefusedError):
                raise NotRunning(f"the fleet in {data} is not running") from None
            except OSError as error:
                raise ControlError(f"cannot connect to the fleet in {data}: {error.strerror}") from None
            with connection.makefile("rwb") as stream:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
                line = stream.readline()
    except (TimeoutError, ConnectionError) as error:
        if not isinstance(error, TimeoutError):
            raise ControlError(f"the fleet in {data} ended during the command") from None
        raise ControlError(f"the fleet in {data} did not respond within {timeout_s:.0f} s") from None
    finally:
        os.close(directory)
    if not line:
        raise ControlError(f"the fleet in {data} ended during the command")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise ControlError(answer["error"])
    return answer
