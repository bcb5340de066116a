"""A FUSE file system over a folder that fails or hangs on command. Root only.

    python -m tests.integration.fuse_server FOLDER MOUNTPOINT

It reads lines from standard input: `ok` (calls succeed, also those that waited), `eio` (every call fails with EIO),
`hang` (no call completes), and prints `ready` when it is mounted. It uses the kernel's protocol on /dev/fuse (version
7.31) without a library, and implements only the file operations of a broker. When the process ends, every call on the
file system fails, and the caller has to unmount it (`umount -l`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import sys
from collections.abc import Callable

_IN_HEADER = struct.Struct("<IIQQIIIHH")
_OUT_HEADER = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_ENTRY_HEAD = struct.Struct("<4Q2I")
_ATTR_HEAD = struct.Struct("<Q2I")
_OPEN_OUT = struct.Struct("<QII")
_STATFS = struct.Struct("<5Q4I24x")
_DIRENT = struct.Struct("<QQII")
_SETATTR = struct.Struct("<II6Q8I")
_MAX_WRITE = 128 * 1024
_VALID_S = 1
_ROOT = 1
_BIG_WRITES = 1 << 5
_FATTR_MODE, _FATTR_SIZE, _FATTR_FH = 1 << 0, 1 << 3, 1 << 6
_GETATTR_FH = 1
_UNANSWERED = (2, 36, 42)
"""FORGET, INTERRUPT, BATCH_FORGET."""

Handler = Callable[[int, memoryview], bytes]


class FuseServer:
    """See the module. Nodes are paths below the folder; renamed files keep their number."""

    def __init__(self, folder: str, mountpoint: str) -> None:
        self._paths: dict[int, str] = {_ROOT: folder}
        self._ids: dict[str, int] = {folder: _ROOT}
        self._next = _ROOT
        self._handles: dict[int, int] = {}
        """The last open file of each node: it outlives its name."""
        self._mode = "ok"
        self._waiting: list[bytes] = []
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"ottla-test", mountpoint.encode(), b"fuse", 0, options):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), mountpoint)
        self._handlers: dict[int, Handler] = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            12: self._rename,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: self._release,
            20: self._fsync,
            25: lambda node, body: b"",
            26: self._init,
            27: lambda node, body: _OPEN_OUT.pack(0, 0, 0),
            28: self._readdir,
            29: lambda node, body: b"",
            30: self._fsyncdir,
            35: self._create,
            45: self._rename2,
        }

    def run(self) -> None:
        """Until its standard input ends."""
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([self._device, sys.stdin], [], [])
            if sys.stdin in readable:
                line = sys.stdin.readline()
                if not line:
                    return
                self._mode = line.strip()
                print(self._mode, flush=True)
                if self._mode == "ok":
                    waiting, self._waiting = self._waiting, []
                    for request in waiting:
                        self._answer(request)
            if self._device in readable:
                try:
                    request = os.read(self._device, _MAX_WRITE + 8192)
                except OSError as error:
                    if error.errno == errno.ENODEV:  # unmounted
                        return
                    raise
                if self._mode == "hang":
                    self._waiting.append(request)
                else:
                    self._answer(request)

    def _answer(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = _IN_HEADER.unpack_from(request)
        if opcode in _UNANSWERED:
            return
        error, body = 0, b""
        handler = self._handlers.get(opcode)
        try:
            if self._mode == "eio" and opcode != 26:
                raise OSError(errno.EIO, "asked for")
            if handler is None:
                raise OSError(errno.ENOSYS, "not served")
            body = handler(node, memoryview(request)[_IN_HEADER.size :])
        except OSError as failure:
            error = failure.errno or errno.EIO
        try:
            os.write(self._device, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), -error, unique) + body)
        except OSError as failure:
            if failure.errno != errno.ENOENT:  # whoever asked has been killed
                raise

    # -- names

    def _child(self, node: int, name: memoryview) -> str:
        return os.path.join(self._paths[node], bytes(name).split(b"\0", 1)[0].decode())

    def _entry(self, path: str) -> bytes:
        attributes = self._attributes(os.lstat(path))
        if path not in self._ids:
            self._next += 1
            self._ids[path] = self._next
            self._paths[self._next] = path
        return _ENTRY_HEAD.pack(self._ids[path], 0, _VALID_S, _VALID_S, 0, 0) + attributes

    def _attributes(self, found: os.stat_result) -> bytes:
        times = [divmod(value, 10**9) for value in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
        return _ATTR.pack(
            found.st_ino,
            found.st_size,
            found.st_blocks,
            *(whole for whole, _ in times),
            *(rest for _, rest in times),
            found.st_mode,
            found.st_nlink,
            found.st_uid,
            found.st_gid,
            0,
            4096,
            0,
        )

    def _forget(self, path: str) -> None:
        self._ids.pop(path, None)

    def _lookup(self, node: int, body: memoryview) -> bytes:
        return self._entry(self._child(node, body))

    def _mkdir(self, node: int, body: memoryview) -> bytes:
        path = self._child(node, body[8:])
        os.mkdir(path)
        return self._entry(path)

    def _unlink(self, node: int, body: memoryview) -> bytes:
        path = self._child(node, body)
        os.unlink(path)
        self._forget(path)
        return b""

    def _rmdir(self, node: int, body: memoryview) -> bytes:
        path = self._child(node, body)
        os.rmdir(path)
        self._forget(path)
        return b""

    def _rename(self, node: int, body: memoryview) -> bytes:
        return self._move(node, struct.unpack_from("<Q", body)[0], bytes(body[8:]))

    def _rename2(self, node: int, body: memoryview) -> bytes:
        return self._move(node, struct.unpack_from("<Q", body)[0], bytes(body[16:]))

    def _move(self, node: int, new_node: int, names: bytes) -> bytes:
        old_name, new_name, *_ = names.split(b"\0")
        old = os.path.join(self._paths[node], old_name.decode())
        new = os.path.join(self._paths[new_node], new_name.decode())
        os.rename(old, new)
        self._forget(new)
        for path in [path for path in self._ids if path == old or path.startswith(old + "/")]:
            number = self._ids.pop(path)
            self._ids[new + path[len(old) :]] = number
            self._paths[number] = new + path[len(old) :]
        return b""

    # -- files

    def _init(self, node: int, body: memoryview) -> bytes:
        readahead = struct.unpack_from("<I", body, 8)[0]
        return struct.pack("<4I2H2I2HI28x", 7, 31, readahead, _BIG_WRITES, 12, 9, _MAX_WRITE, 1, 0, 0, 0)

    def _getattr(self, node: int, body: memoryview) -> bytes:
        flags, _, handle = struct.unpack_from("<IIQ", body)
        if flags & _GETATTR_FH:
            found = os.fstat(handle)
        elif self._ids.get(self._paths[node]) == node:
            found = os.lstat(self._paths[node])
        else:
            found = os.fstat(self._handles[node])  # deleted while open
        return _ATTR_HEAD.pack(_VALID_S, 0, 0) + self._attributes(found)

    def _setattr(self, node: int, body: memoryview) -> bytes:
        valid, _, handle, size, *rest = _SETATTR.unpack_from(body)
        target: int | str = handle if valid & _FATTR_FH else self._paths[node]
        if valid & _FATTR_SIZE:
            os.truncate(target, size)
        if valid & _FATTR_MODE:
            os.chmod(target, stat.S_IMODE(rest[7]))
        return _ATTR_HEAD.pack(_VALID_S, 0, 0) + self._attributes(os.stat(target))

    def _open(self, node: int, body: memoryview) -> bytes:
        flags = struct.unpack_from("<I", body)[0]
        handle = os.open(self._paths[node], flags & ~(os.O_APPEND | os.O_CREAT | os.O_EXCL))
        self._handles[node] = handle
        return _OPEN_OUT.pack(handle, 0, 0)

    def _create(self, node: int, body: memoryview) -> bytes:
        flags, mode = struct.unpack_from("<II", body)
        path = self._child(node, body[16:])
        handle = os.open(path, (flags & ~os.O_APPEND) | os.O_CREAT, mode)
        entry = self._entry(path)
        self._handles[self._ids[path]] = handle
        return entry + _OPEN_OUT.pack(handle, 0, 0)

    def _read(self, node: int, body: memoryview) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def _write(self, node: int, body: memoryview) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _statfs(self, node: int, body: memoryview) -> bytes:
        found = os.statvfs(self._paths[_ROOT])
        return _STATFS.pack(
            *(found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree),
            *(found.f_bsize, found.f_namemax, found.f_frsize, 0),
        )

    def _release(self, node: int, body: memoryview) -> bytes:
        handle = struct.unpack_from("<Q", body)[0]
        os.close(handle)
        if self._handles.get(node) == handle:
            del self._handles[node]
        return b""

    def _fsync(self, node: int, body: memoryview) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def _fsyncdir(self, node: int, body: memoryview) -> bytes:
        handle = os.open(self._paths[node], os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return b""

    def _readdir(self, node: int, body: memoryview) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        found = b""
        names = [".", "..", *sorted(os.listdir(self._paths[node]))]
        for number, name in enumerate(names[offset:], offset + 1):
            try:
                mode = os.lstat(os.path.join(self._paths[node], name)).st_mode
            except FileNotFoundError:
                continue
            encoded = name.encode()
            entry = _DIRENT.pack(number, number, len(encoded), mode >> 12) + encoded
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found


if __name__ == "__main__":
    FuseServer(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])).run()
