"""Where admin clients are destroyed."""

from __future__ import annotations

import gc
import threading
import weakref

from confluent_kafka.admin import AdminClient

from tests.admin_clients import protect


def test_an_admin_client_is_destroyed_by_the_main_thread_alone() -> None:
    protect()
    client = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    client.itself = client  # type: ignore[attr-defined]
    found = weakref.ref(client)
    del client
    other = threading.Thread(target=gc.collect)
    other.start()
    other.join()
    assert found() is not None
    gc.collect()
    assert found() is None
