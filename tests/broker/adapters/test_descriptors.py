"""A process without free descriptors, with real limits: in a child process, to leave the test process its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_BEGIN = """
import asyncio, errno, os, resource, socket, sys
from ottla_broker.adapters.descriptors import RESERVE
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.network import SocketNetwork
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
taken = []
def take_all():
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.EMFILE
def give_back():
    while taken:
        os.close(taken.pop())
"""

_BRIEF_CALLS = """
async def main():
    RESERVE.fill()
    disk = DirectoryDisk(sys.argv[1])
    assert await disk.lock()
    await disk.make_directory("t-0")
    file = await disk.open("t-0/0.log", create=True)
    take_all()
    try:
        await disk.open("t-0/1.log", create=True)
    except OSError as error:
        assert error.errno == errno.EMFILE
    else:
        raise AssertionError("there was one left")
    await disk.write_file("checkpoint", b"0")
    await disk.append_to("t-0/0.index", [b"entry"])
    await disk.fsync_file("t-0/0.index")
    await disk.fsync_directory("t-0")
    assert await disk.read_file("checkpoint") == b"0"
    assert [name for name, _, _ in await disk.list("t-0")] == ["0.index", "0.log"]
    await disk.probe()
    await disk.check_space()
    assert await file.append([b"record"]) == 6
    await file.fsync()
    await disk.make_directory("t-1/deep")
    await disk.delete("t-1")
    give_back()
    await (await disk.open("t-0/1.log", create=True)).append([b"later"])
    disk.close()
asyncio.run(main())
"""

_CONNECTIONS = """
class Handler:
    def __init__(self, connection): accepted.append(connection)
    def on_frame(self, frame): pass
    def on_sent(self): pass
    def on_close(self, reason): pass
accepted = []
async def main():
    loop = asyncio.get_running_loop()
    network = SocketNetwork()
    disk = DirectoryDisk(sys.argv[1])
    clients = await network.listen("127.0.0.1", 0, Handler, max_frame_bytes=100)
    brokers = await network.listen("127.0.0.1", 0, Handler, max_frame_bytes=100, is_privileged=True)
    sockets = [socket.socket() for _ in range(2)]
    while not taken or taken[-1] < 120:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    sockets[0].setblocking(False)
    await loop.sock_connect(sockets[0], ("127.0.0.1", clients.port))
    assert await loop.sock_recv(sockets[0], 1) == b""  # closed: the rest is for files and brokers
    assert not accepted
    sockets[1].setblocking(False)
    await loop.sock_connect(sockets[1], ("127.0.0.1", brokers.port))
    while not accepted:
        await asyncio.sleep(0)
    give_back()
    again = socket.socket()
    again.setblocking(False)
    await loop.sock_connect(again, ("127.0.0.1", clients.port))
    while len(accepted) < 2:
        await asyncio.sleep(0)
    network.close()
asyncio.run(asyncio.wait_for(main(), 60))
"""


@pytest.mark.parametrize("what", [_BRIEF_CALLS, _CONNECTIONS], ids=["files", "connections"])
def test_a_process_without_free_descriptors_still_syncs_and_probes_its_disk(what: str, tmp_path: Path) -> None:
    """Checkpoints, syncs and deletions use the reserve; a client's connection is closed before the last descriptors are
    used, another broker's is not; opening a file is refused and the lane goes on."""
    run = subprocess.run([sys.executable, "-c", _BEGIN + what, str(tmp_path)], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
