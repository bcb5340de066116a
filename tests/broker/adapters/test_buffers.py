"""Receive buffers: few are in use, and those that somebody keeps do not prevent others."""

from __future__ import annotations

from ottla_broker.adapters.buffers import BufferPool


def test_the_pool_keeps_as_many_buffers_as_are_in_use() -> None:
    pool = BufferPool(kept_bytes=1 << 20)
    seen = set()
    for _ in range(50):
        first, second = pool.take(8192), pool.take(8192)
        seen |= {id(first), id(second)}
        del first, second
    assert len(seen) == 2
    assert pool.total_bytes == 2 * 8192


def test_a_slice_keeps_its_buffer() -> None:
    pool = BufferPool(kept_bytes=1 << 20)
    held = memoryview(pool.take(8192))[10:20]
    held[:] = b"0123456789"
    for _ in range(5):
        other = pool.take(8192)
        other[:] = bytes(8192)
        del other
    assert bytes(held) == b"0123456789"


def test_free_buffers_are_found_when_connections_keep_others() -> None:
    pool = BufferPool(kept_bytes=1 << 20)
    kept = [pool.take(8192) for _ in range(40)]
    del kept[20:24]
    before = pool.total_bytes
    for _ in range(100):
        pool.take(8192)
    assert pool.total_bytes <= before + 8 * 8192, "free buffers further back are found again"
    assert len(kept) == 36


def test_nobody_gets_more_than_the_limit_while_others_keep_slices() -> None:
    pool = BufferPool(kept_bytes=0)
    held = [memoryview(pool.take(8192))[:1] for _ in range(4)]
    assert pool.take_within(8192, 32768) is None
    del held[1]
    assert pool.take_within(8192, 32768) is None, "nobody has looked"
    assert pool.count() == 24576
    assert pool.take_within(8192, 32768) is not None


def test_free_buffers_of_another_size_make_room() -> None:
    pool = BufferPool(kept_bytes=1 << 20)
    free = [pool.take(65536) for _ in range(4)]
    del free
    pool.count()
    assert pool.take_within(131072, 262144) is not None
    assert pool.total_bytes == 131072


def test_what_nobody_took_between_two_looks_is_given_back_and_what_is_in_use_stays() -> None:
    pool = BufferPool(kept_bytes=1 << 20)
    held = pool.take(8192)
    free = [pool.take(65536) for _ in range(4)]
    del free
    assert (pool.drop_unused(), pool.total_bytes) == (0, 8192 + 4 * 65536)
    assert (pool.drop_unused(), pool.total_bytes) == (4 * 65536, 8192)
    assert len(held) == 8192


def test_of_free_buffers_in_use_again_and_again_no_more_are_kept_than_the_pool_keeps() -> None:
    pool = BufferPool(kept_bytes=65536)
    for _ in range(2):
        taken = [pool.take(65536) for _ in range(4)]
        del taken
        pool.drop_unused()
        assert pool.total_bytes == 65536
