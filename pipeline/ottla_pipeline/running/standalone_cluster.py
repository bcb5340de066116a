"""Whether a master of a Spark standalone cluster answers.

Spark itself tries for a minute and more, and says nothing meanwhile.
"""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

from ottla_pipeline.errors import PipelineError

WAIT_S = 10.0
"""How long a master that is being started has until it answers."""
_PAUSE_S = 0.5


def standalone_masters(master: str) -> list[tuple[str, int]]:
    """The addresses of the masters in Spark's URL of a standalone cluster; none of what is another URL, or malformed.

    Source: org.apache.spark.util.Utils.parseStandaloneMasterUrls.

    >>> standalone_masters("spark://a:7077,[::1]:7078")
    [('a', 7077), ('::1', 7078)]
    >>> [standalone_masters(url) for url in ("local[2]", "k8s://https://h:1", "spark://a", "spark://a:b,c:1")]
    [[], [], [], []]
    """
    scheme, _, addresses = master.partition("://")
    found = []
    for address in addresses.split(",") if scheme == "spark" else ():
        try:
            parts = urlsplit(f"//{address}")
            host, port = parts.hostname, parts.port
        except ValueError:
            return []
        if host is None or port is None:
            return []
        found.append((host, port))
    return found


def await_master(master: str, wait_s: float = WAIT_S) -> None:
    """Returns once a master accepts a connection, at once for what is no standalone cluster.

    Args:
        master: of `--master`.
        wait_s: for so many seconds it is tried again.

    Raises:
        PipelineError: none has accepted one.
    """
    masters = standalone_masters(master)
    deadline = time.monotonic() + wait_s
    while masters:
        reasons = []
        for host, port in masters:
            try:
                socket.create_connection((host, port), max(0.1, deadline - time.monotonic())).close()
                return
            except OSError as error:
                reasons.append(f"{host}:{port} ({error.strerror or error})")
        if time.monotonic() >= deadline:
            raise PipelineError(f"no master answers at {', '.join(reasons)}")
        time.sleep(_PAUSE_S)
