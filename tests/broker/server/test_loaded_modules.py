"""What a broker does not need it does not load: each of these takes megabytes, and a tenth of a second of a start."""

from __future__ import annotations

import subprocess
import sys


def loaded(program: str) -> set[str]:
    """Modules of which `program` has loaded something, of those that few brokers need."""
    names = ("cryptography", "joserfc", "urllib.request", "opentelemetry")
    check = f"{program}\nimport sys\nprint(*[name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


PROCESS = "import ottla_broker.adapters.process, ottla_broker.server.broker"


def test_a_plain_broker_loads_no_library_of_tls_or_tokens() -> None:
    assert loaded(PROCESS) == set()


def test_keys_of_tokens_load_them() -> None:
    program = """
from ottla_broker.config import BrokerConfig
from ottla_broker.server.edge import sasl_listeners
import ottla_broker.security.oauth.signatures
"""
    assert loaded(program) == {"cryptography", "joserfc"}
