"""Receive buffers: few are in use, and those that somebody keeps do not prevent others."""

from __future__ import annotations

from ottla_broker.adapters.buffers import BufferPool


def test_the_pool_keeps_as_many_buffers_as_are_in_use() -> None:
    pool = BufferPool(limit_bytes=1 << 20)
    seen = set()
    for _ in range(50):
        first, second = pool.take(8192), pool.take(8192)
        seen |= {id(first), id(second)}
        del first, second
    assert len(seen) == 2
    assert pool.kept_bytes == 2 * 8192


def test_a_slice_keeps_its_buffer() -> None:
    pool = BufferPool(limit_bytes=1 << 20)
    held = memoryview(pool.take(8192))[10:20]
    held[:] = b"0123456789"
    for _ in range(5):
        other = pool.take(8192)
        other[:] = bytes(8192)
        del other
    assert bytes(held) == b"0123456789"


def test_free_buffers_are_found_when_connections_keep_others() -> None:
    pool = BufferPool(limit_bytes=1 << 20)
    kept = [pool.take(8192) for _ in range(40)]
    del kept[20:24]
    before = pool.kept_bytes
    for _ in range(100):
        pool.take(8192)
    assert pool.kept_bytes <= before + 8 * 8192, "free buffers further back are found again"
    assert len(kept) == 36


def test_buffers_beyond_the_limit_are_created_and_not_kept() -> None:
    pool = BufferPool(limit_bytes=16384)
    held = [pool.take(8192) for _ in range(5)]
    assert len({id(buffer) for buffer in held}) == 5
    assert pool.kept_bytes == 16384
