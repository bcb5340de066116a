"""The loop that another thread goes on with: as an asyncio loop, and during a takeover."""

from __future__ import annotations

import asyncio
import contextvars
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from ottla_broker.adapters import event_loop
from ottla_broker.adapters.event_loop import TakeoverLoop

T = TypeVar("T")
_LIMIT_S = 60.0


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=TakeoverLoop) as runner:
        return runner.run(asyncio.wait_for(main, _LIMIT_S))


def takeover_loop() -> TakeoverLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TakeoverLoop)
    return loop


class Stuck:
    """A callback of the running loop that is stuck in a call until `release`."""

    def __init__(self) -> None:
        self.loop = takeover_loop()
        self.has_begun = threading.Event()
        self.is_released = threading.Event()
        self.kept_the_loop: bool | None = None
        self.done = self.loop.create_future()
        self.loop.call_soon(self._call)

    def _call(self) -> None:
        token = self.loop.begin_call()
        self.has_begun.set()
        assert self.is_released.wait(_LIMIT_S)
        self.kept_the_loop = self.loop.end_call(token)
        self.loop.call_soon_threadsafe(self.done.set_result, threading.get_ident())

    async def taken_over(self) -> None:
        """Returns on the thread that has taken the loop over."""
        before = threading.get_ident()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert self.has_begun.is_set()
        assert threading.get_ident() != before

    async def release(self) -> None:
        self.is_released.set()
        assert await self.done != threading.get_ident()
        assert self.kept_the_loop is False


# As an asyncio loop


def test_streams_and_subprocesses_work() -> None:
    async def main() -> tuple[bytes, bytes]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
        server.close()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(7)", stdout=subprocess.PIPE)
        printed, _ = await child.communicate()
        return line, printed

    assert run(main()) == (b"hello\n", b"7\n")


def test_timers_come_in_the_order_of_their_times_and_a_cancelled_one_not_at_all() -> None:
    async def main() -> list[int]:
        loop, called, over = asyncio.get_running_loop(), list[int](), asyncio.Event()
        loop.call_later(0.03, over.set)
        loop.call_later(0.02, called.append, 2)
        loop.call_later(0.01, called.append, 1)
        loop.call_later(0.015, called.append, 9).cancel()
        await over.wait()
        return called

    assert run(main()) == [1, 2]


def test_a_callback_that_fails_is_reported_and_the_loop_goes_on() -> None:
    async def main() -> list[str]:
        loop, reported = asyncio.get_running_loop(), list[str]()
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            received = loop.create_future()

            def fail_once() -> None:
                text = ours.recv(1)
                if text == b"x":
                    raise ValueError("of a reader")
                received.set_result(text)

            loop.add_reader(ours, fail_once)
            theirs.send(b"x")
            loop.call_soon(lambda: 1 // 0)
            await asyncio.sleep(0.01)
            theirs.send(b"y")
            assert await received == b"y"
            assert loop.remove_reader(ours) and not loop.remove_reader(ours)
        return sorted(reported)

    assert run(main()) == ["integer division or modulo by zero", "of a reader"]


def test_a_reader_and_a_writer_of_one_descriptor_are_independent_and_keep_their_contexts() -> None:
    variable = contextvars.ContextVar("variable", default="none")

    async def main() -> tuple[set[str], str]:
        loop, called = asyncio.get_running_loop(), asyncio.Queue[str]()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            variable.set("writer")
            loop.add_writer(ours, lambda: called.put_nowait(variable.get()))
            variable.set("reader")
            loop.add_reader(ours, lambda: called.put_nowait(variable.get()))
            theirs.send(b"x")
            seen = set[str]()
            while len(seen) < 2:
                seen.add(await called.get())
            loop.remove_writer(ours)
            while not called.empty():
                called.get_nowait()
            last = await called.get()
            loop.remove_reader(ours)
        return seen, last

    assert run(main()) == ({"reader", "writer"}, "reader")


def test_a_sender_that_waits_is_called_between_the_callbacks_of_others_and_only_while_its_peer_reads() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        called: list[str] = []

        def send() -> None:
            called.append("send")
            try:
                while True:
                    near.send(bytes(65536))
            except BlockingIOError:
                return

        def read() -> None:
            called.append("read")
            try:
                while True:
                    far.recv(1 << 20)
            except BlockingIOError:
                return

        async def order_of(first: Callable[[], None]) -> list[str]:
            """What is called from `first` on, which calls two others, one after the other."""
            called.clear()
            done = loop.create_future()

            def second() -> None:
                called.append("second")
                loop.call_soon(done.set_result, None)

            loop.call_soon(lambda: (first(), loop.call_soon(second)))
            await done
            return list(called)

        loop.add_writer(near, send)
        await asyncio.sleep(0.01)
        assert await order_of(read) == ["read", "send", "second"]
        for _ in range(event_loop._TURNS_OF_A_SENDER):  # nobody reads
            await asyncio.sleep(0.001)
        assert await order_of(lambda: called.append("other")) == ["other", "second"]
        assert loop._turns_of_a_sender == 0  # type: ignore[attr-defined]
        loop.remove_writer(near)
        near.close()
        far.close()

    run(main())


def test_no_wakeup_from_another_thread_is_lost() -> None:
    async def main() -> int:
        loop, asked, count = asyncio.get_running_loop(), threading.Semaphore(0), 0
        answered = asyncio.Event()

        def answer() -> None:
            for _ in range(5_000):
                asked.acquire()
                loop.call_soon_threadsafe(answered.set)

        threading.Thread(target=answer, daemon=True).start()
        for _ in range(5_000):
            asked.release()
            await answered.wait()
            answered.clear()
            count += 1
        return count

    assert run(main()) == 5_000


def test_a_callback_that_exits_ends_the_process_with_its_status() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(_LIMIT_S)

    with pytest.raises(SystemExit) as ended:
        run(main())
    assert ended.value.code == 3


# During a takeover


def test_everything_goes_on_and_in_order_while_a_callback_is_stuck() -> None:
    async def main() -> list[int]:
        loop, called = takeover_loop(), list[int]()
        stuck = Stuck()
        for number in range(5):
            loop.call_soon(called.append, number)
        await stuck.taken_over()
        while len(called) < 5:  # noqa: ASYNC110 - they come one by one
            await asyncio.sleep(0)
        await stuck.release()
        assert loop.takeovers == 1
        return called

    assert run(main()) == [0, 1, 2, 3, 4]


def test_a_thread_that_has_taken_over_can_be_stuck_as_well() -> None:
    async def main() -> int:
        first = Stuck()
        await first.taken_over()
        second = Stuck()
        await second.taken_over()
        await second.release()
        await first.release()
        third = Stuck()
        await third.taken_over()
        await third.release()
        return takeover_loop().takeovers

    assert run(main()) == 3


def test_a_slow_callback_that_announces_nothing_keeps_the_loop() -> None:
    async def main() -> int:
        before = threading.get_ident()
        loop = takeover_loop()
        for _ in range(3):
            token = loop.begin_call()
            assert loop.end_call(token)
        assert not threading.Event().wait(0.05)
        await asyncio.sleep(0)
        assert threading.get_ident() == before
        return loop.takeovers

    assert run(main()) == 0


def test_a_call_after_a_long_rest_is_watched_too() -> None:
    async def main() -> None:
        loop = takeover_loop()
        while loop._is_watched:  # noqa: ASYNC110 - the watchdog announces nothing
            await asyncio.sleep(0.01)
        stuck = Stuck()
        await stuck.taken_over()
        await stuck.release()

    run(main())


def test_signals_and_subprocesses_are_served_during_a_takeover() -> None:
    async def main() -> bytes:
        loop, got = takeover_loop(), asyncio.Event()
        stuck = Stuck()
        await stuck.taken_over()
        loop.add_signal_handler(signal.SIGUSR1, got.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await got.wait()
        assert loop.remove_signal_handler(signal.SIGUSR1)
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(7)", stdout=subprocess.PIPE)
        printed, _ = await child.communicate()
        await stuck.release()
        return printed

    assert run(main()) == b"7\n"


def test_the_loop_stops_and_the_process_goes_on_while_a_callback_is_stuck() -> None:
    released = list[Stuck]()

    async def main() -> int:
        stuck = Stuck()
        released.append(stuck)
        await stuck.taken_over()
        return 4

    try:
        assert run(main()) == 4
    finally:
        for stuck in released:
            stuck.loop.call_soon_threadsafe = lambda *_: None  # type: ignore[method-assign,assignment]
            stuck.is_released.set()


class _LateWaker:
    """The loop's socket; right before it is read, a thread that saw the loop in its poll goes on to wake it."""

    def __init__(self, loop: TakeoverLoop) -> None:
        self._loop = loop
        self._socket = loop._ssock
        self.has_come = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)

    def recv(self, size: int) -> bytes:
        if not self.has_come:
            self.has_come = True
            self._loop._is_polling = True  # as that thread saw it
            self._loop._write_to_self()
            self._loop._is_polling = False
        return self._socket.recv(size)

    @property
    def has_byte(self) -> bool:
        return bool(select.select([self._socket], [], [], 0)[0])


def test_a_thread_that_wakes_the_loop_while_it_reads_of_another_one_does_not_leave_it_deaf() -> None:
    async def main() -> None:
        loop = takeover_loop()
        waker = _LateWaker(loop)
        loop._ssock = waker  # type: ignore[assignment]
        woken = asyncio.Event()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(woken.set))
        loop.call_soon(thread.start)
        await woken.wait()
        while not waker.has_come:
            loop._is_polling = True
            loop._write_to_self()  # the thread was quicker than the poll
            await asyncio.sleep(0)
        assert not loop._is_woken or waker.has_byte, "nobody would send the next byte"
        thread.join()

    run(main())


@pytest.fixture
def default_ctrl_c() -> Iterator[None]:
    """What a terminal's foreground has; a job of `nohup` or of `&` in a script ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_ctrl_c")
def test_ctrl_c_cancels_the_main_task_during_a_takeover() -> None:
    """As asyncio.Runner does; a second one raises KeyboardInterrupt."""
    ended = list[str]()

    async def main() -> None:
        stuck = Stuck()
        await stuck.taken_over()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(_LIMIT_S)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        finally:
            await stuck.release()

    with pytest.raises(KeyboardInterrupt), asyncio.Runner(loop_factory=TakeoverLoop) as runner:
        runner.run(main())
    assert ended == ["cancelled"]
