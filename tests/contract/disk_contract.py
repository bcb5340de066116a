"""The tests that every adapter of the Disk port has to pass.

Subclass and provide the `disk` fixture: an empty log directory.

`other_disk` returns a second Disk of the same directory, as another broker would open it.
"""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.ports.disk import Disk


class HeldWriteOut:
    """Makes `write_out` on a real disk wait: `begun` is set when it has started, `may_go_on` ends it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self._write_out = disk_calls.write_out
        monkeypatch.setattr(disk_calls, "write_out", self._wait)

    def _wait(self, descriptor: int) -> None:
        self.begun.set()
        assert self.may_go_on.wait(60)
        self._write_out(descriptor)

    async def until_begun(self) -> None:
        assert await asyncio.get_running_loop().run_in_executor(None, self.begun.wait, 60)


class DiskContract:
    async def test_a_file_is_unchanged_when_it_is_written_out(self, disk: Disk) -> None:
        file = await disk.open("large", create=True)
        await file.append([b"0123456789" * 1_000_000])
        await file.write_out()
        await file.append([b"x"])
        await file.write_out()
        await file.fsync()
        assert file.size == 10_000_001
        assert await file.read(9_999_998, 9) == b"89x"
        await file.close()

    async def test_appended_bytes_are_read_back_and_counted(self, disk: Disk) -> None:
        await disk.make_directory("t-0")
        file = await disk.open("t-0/0.log", create=True)
        assert file.size == 0
        assert await file.append([b"abc", memoryview(b"xdefx")[1:4], bytearray(b"!")]) == 7
        assert file.size == 7
        assert await file.read(0, 100) == b"abcdef!"
        assert await file.read(2, 3) == b"cde"
        assert await file.read(7, 10) == b""
        await file.close()
        again = await disk.open("t-0/0.log")
        assert again.size == 7

    async def test_appends_queued_together_keep_their_order_and_sizes(self, disk: Disk) -> None:
        first = await disk.open("a", create=True)
        second = await disk.open("b", create=True)
        futures = []
        for number in range(100):
            futures.append(first.append([b"%04d" % number]))
            futures.append(second.append([b"%03d" % number]))
        synced = first.fsync()
        sizes = [await future for future in futures]
        await synced
        assert sizes[::2] == [4 * (number + 1) for number in range(100)]
        assert sizes[1::2] == [3 * (number + 1) for number in range(100)]
        assert await first.read(0, 1000) == b"".join(b"%04d" % number for number in range(100))
        assert await second.read(0, 1000) == b"".join(b"%03d" % number for number in range(100))

    async def test_appends_complete_in_order_and_never_within_the_call(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        told: asyncio.Queue[int] = asyncio.Queue()
        for text in (b"a", b"bc", b"def"):
            file.append([text], lambda done: told.put_nowait(done.result()))
            assert told.empty()
        assert [await told.get() for _ in range(3)] == [1, 3, 6]

    async def test_an_empty_append_completes_in_order(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        before = file.append([b"x"])
        assert await file.append([]) == 1
        assert before.done()

    async def test_an_append_of_more_buffers_than_one_system_call_takes_is_complete(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        assert await file.append([b"%05d" % number for number in range(3000)]) == 15000
        assert await file.read(14990, 10) == b"0299802999"

    async def test_opening_an_absent_file_is_refused_without_create(self, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            await disk.open("absent")
        with pytest.raises(FileNotFoundError):
            await disk.read_file("absent")
        with pytest.raises(FileNotFoundError):
            await disk.open("no-directory/file", create=True)
        assert not await disk.exists("absent")

    async def test_appends_after_a_truncation_are_at_the_new_end(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        await file.append([b"0123456789"])
        await file.truncate(4)
        assert file.size == 4
        assert await file.append([b"ab"]) == 6
        assert await file.read(0, 10) == b"0123ab"

    async def test_a_small_file_is_replaced_atomically(self, disk: Disk) -> None:
        await disk.write_file("meta", b"one")
        await disk.write_file("meta", b"second")
        assert await disk.read_file("meta") == b"second"
        assert await disk.list() == [("meta", False, 6)]

    async def test_appends_to_a_file_that_is_not_open_keep_the_order_of_all_calls(self, disk: Disk) -> None:
        await disk.make_directory("t-0")
        first = disk.append_to("t-0/0.index", [b"ab", b"c"])
        second = disk.append_to("t-0/0.index", (bytearray(b"de"),))
        assert await disk.append_to("t-0/empty", ()) == 0
        assert (first.result(), second.result()) == (3, 5)
        assert await disk.list("t-0") == [("0.index", False, 5), ("empty", False, 0)]
        await disk.fsync_file("t-0/0.index")
        assert await disk.read_file("t-0/0.index") == b"abcde"
        with pytest.raises(FileNotFoundError):
            await disk.fsync_file("t-0/absent")

    async def test_several_directories_are_read_in_one_call(self, disk: Disk) -> None:
        for name in ("a-0", "b-0", "c-0"):
            await disk.make_directory(name)
        await disk.make_directory("a-0/nested.index")
        await disk.write_file("a-0/0.index", b"123")
        await disk.write_file("a-0/0.log", b"45")
        await disk.write_file("b-0/0.index", b"12345")
        assert await disk.read_directories(["b-0", "a-0", "c-0"], (".index", ".snapshot"), 4) == [
            {"0.index": (False, 5, None)},
            {"0.index": (False, 3, b"123"), "0.log": (False, 2, None), "nested.index": (True, 0, None)},
            {},
        ]
        with pytest.raises(FileNotFoundError):
            await disk.read_directories(["a-0", "absent"], (".index",), 4)

    async def test_a_listing_is_sorted_and_marks_directories(self, disk: Disk) -> None:
        await disk.make_directory("b-0/nested")
        await disk.make_directory("b-0")
        await disk.write_file("c", b"12")
        await disk.write_file("a", b"")
        assert await disk.list() == [("a", False, 0), ("b-0", True, 0), ("c", False, 2)]
        assert await disk.list("b-0") == [("nested", True, 0)]
        with pytest.raises(FileNotFoundError):
            await disk.list("absent")

    async def test_modified_ms_is_when_a_file_was_last_written(self, disk: Disk) -> None:
        first, second = [await disk.open(name, create=True) for name in ("first", "second")]
        await first.append([b"x"])
        await asyncio.sleep(0.02)
        await second.append([b"x"])
        between = await disk.modified_ms("second") - await disk.modified_ms("first")
        assert 0 < between < 60_000
        await first.append([b"x"])
        assert await disk.modified_ms("first") >= await disk.modified_ms("second")
        with pytest.raises(FileNotFoundError):
            await disk.modified_ms("absent")

    async def test_an_open_file_is_usable_after_a_rename(self, disk: Disk) -> None:
        await disk.make_directory("t-0")
        file = await disk.open("t-0/x", create=True)
        await file.append([b"data"])
        await disk.rename("t-0", "t-0-delete")
        await disk.fsync_directory()
        assert await file.append([b"more"]) == 8
        assert not await disk.exists("t-0")
        assert await disk.read_file("t-0-delete/x") == b"datamore"
        with pytest.raises(FileNotFoundError):
            await disk.rename("absent", "b")

    async def test_delete_accepts_files_directories_and_absent_names(self, disk: Disk) -> None:
        await disk.make_directory("t-0")
        await disk.write_file("t-0/x", b"x")
        await disk.write_file("y", b"y")
        await disk.delete("t-0")
        await disk.delete("y")
        await disk.delete("absent")
        assert await disk.list() == []

    async def test_a_range_can_be_read_after_close_and_deletion(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        await file.append([b"0123456789"])
        part = file.range(2, 5)
        assert part.length == 5
        closed = file.close()
        await disk.delete("a")
        assert part.read() == b"23456"
        part.release()
        part.release()
        await closed

    async def test_a_range_beyond_the_written_bytes_is_refused(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        await file.append([b"0123456789"])
        with pytest.raises(ValueError):
            file.range(5, 6)

    async def test_a_range_is_stale_when_its_file_is_truncated_below_its_end(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        await file.append([b"0123456789"])
        before, across = file.range(0, 5), file.range(3, 5)
        cut = file.truncate(5)
        assert (before.is_stale, across.is_stale) == (False, True)
        await cut
        await file.append([b"abcde"])
        after = file.range(3, 5)
        assert (before.read(), after.read()) == (b"01234", b"34abc")
        with pytest.raises(OSError) as error:
            across.read()
        assert error.value.errno == errno.ESTALE
        for part in (before, across, after):
            part.release()

    async def test_a_range_is_stale_when_another_open_file_truncates_it(self, disk: Disk) -> None:
        file = await disk.open("t", create=True)
        await file.append([b"0123456789"])
        before, across = file.range(0, 5), file.range(3, 5)
        closing = file.close()
        again = await disk.open("t")
        cut = again.truncate(5)
        assert (before.is_stale, across.is_stale) == (False, True)
        await cut
        await again.append([b"abcde"])
        after = again.range(3, 5)
        assert (before.read(), after.read()) == (b"01234", b"34abc")
        for part in (before, across, after):
            part.release()
        await closing
        await again.close()

    async def test_read_ahead_makes_a_range_cached(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        await file.append([b"x" * 100_000])
        await file.read_ahead(0, 100_000)
        assert isinstance(file.is_cached(0, 100_000), bool)

    async def test_a_map_shows_the_whole_file(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        assert bytes(await file.map()) == b""
        await file.append([b"index"])
        view = await file.map()
        assert view.readonly and bytes(view) == b"index"

    async def test_fsync_completes(self, disk: Disk) -> None:
        await disk.make_directory("t-0")
        file = await disk.open("t-0/a", create=True)
        appended = file.append([b"x"])
        await file.fsync()
        assert appended.done()
        await disk.fsync_directory("t-0")
        await disk.fsync_directory()

    async def test_a_directory_is_locked_by_one_disk(self, disk: Disk, other_disk: Disk) -> None:
        assert await disk.lock()
        assert await disk.lock()
        assert not await other_disk.lock()
        disk.close()
        assert await other_disk.lock()
        other_disk.close()

    async def test_calls_after_close_fail(self, disk: Disk) -> None:
        file = await disk.open("a", create=True)
        disk.close()
        with pytest.raises(OSError):
            await file.append([b"x"])
        with pytest.raises(OSError):
            await disk.open("a")

    async def test_space_and_boot_id_are_reported(self, disk: Disk) -> None:
        assert 0 < await disk.free_bytes() <= await disk.total_bytes()
        assert disk.boot_id() == disk.boot_id()
