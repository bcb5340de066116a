"""What a broker says when it has GSSAPI and not what GSSAPI needs, and that no other broker needs it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.security.kerberos_rules import KerberosRules
from ottla_broker.security.kerberos_settings import KerberosSettings, Keytab, KeytabError, Renewal
from ottla_broker.security.sasl.gssapi import GssapiClient
from ottla_broker.security.sasl.mechanism import Failed
from ottla_broker.server.edge.kerberos_of_broker import KerberosOfBroker

SETTINGS = KerberosSettings(
    Keytab("key", "kafka/b@EXAMPLE", "/k"), "kafka", KerberosRules(["DEFAULT"]), Renewal(0.8, 0.05, 60), True
)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package gssapi."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "ottla_broker.security.kerberos", raising=False)


async def test_without_the_extra_a_broker_says_what_to_install(without: None) -> None:
    with pytest.raises(KeytabError, match=r"sasl.enabled.mechanisms: GSSAPI needs the extra ottla\[kerberos\]"):
        await KerberosOfBroker(LoopClock()).check(SETTINGS)


async def test_where_gssapi_is_enabled_later_without_the_extra_exchanges_fail(without: None) -> None:
    kerberos = KerberosOfBroker(LoopClock())
    step = kerberos.server(SETTINGS).step(b"ticket")
    assert isinstance(step, Failed)
    assert "ottla[kerberos]" in step.detail
    assert step.message == ""
    login = kerberos.login(SETTINGS)
    client: Any = GssapiClient(lambda: login.initiate("b"))
    assert "ottla[kerberos]" in client.step(b"").message


def test_a_broker_without_gssapi_does_not_load_it() -> None:
    program = "import sys, ottla_broker.server.broker; print(any(name.startswith('gssapi') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
