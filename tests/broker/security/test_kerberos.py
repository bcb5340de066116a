"""Tickets of a real key distribution center: who gets in and who does not, logins in time, and nonsense."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.kerberos_rules import KerberosRules
from ottla_broker.security.kerberos_settings import KerberosSettings, Keytab, Renewal
from ottla_broker.security.principals import USER, Principal
from ottla_broker.security.sasl.gssapi import GssapiClient, GssapiServer, KerberosFailure
from ottla_broker.security.sasl.mechanism import Authenticated, Challenge, ClientStep, Complete, Failed, ServerStep
from tests.kdc import REALM, Kdc

if TYPE_CHECKING:
    from ottla_broker.security.kerberos import Kerberos

pytestmark = pytest.mark.kerberos

SERVICE = f"kafka/b.example@{REALM}"
LIMIT_S = 60.0


class Realm:
    """A key distribution center, a service and its client alice. `skew_s`: by how much clocks may differ."""

    def __init__(self, directory: Path, *, lifetime: str = "1d", skew_s: int = 300) -> None:
        self.kdc = Kdc(directory, lifetime=lifetime)
        text = self.kdc.config.read_text().replace("[libdefaults]\n", f"[libdefaults]\n clockskew = {skew_s}\n")
        self.kdc.config.write_text(text)
        self.service_keys = self.kdc.keytab("kafka/b.example")
        self.service = settings(SERVICE, self.service_keys)
        self.alice = settings(f"alice@{REALM}", self.kdc.keytab("alice"))
        self.kdc.start()

    def exchange(
        self, kerberos: Kerberos, client: KerberosSettings | None = None, host: str = "b.example"
    ) -> tuple[ClientStep, ServerStep | None]:
        """What becomes of either side."""
        one = GssapiClient(lambda: kerberos.initiate(client or self.alice, host))
        other = self.server(kerberos)
        token, step = b"", None
        while isinstance(sent := one.step(token), Challenge):
            step = other.step(sent.token)
            if isinstance(step, Failed):
                break
            token = step.token
        return sent, step

    def server(self, kerberos: Kerberos) -> GssapiServer:
        rules = self.service.rules
        return GssapiServer(
            lambda: kerberos.accept(self.service), lambda name: rules.short_name(name, kerberos.default_realm)
        )

    def first_token(self, kerberos: Kerberos) -> bytes:
        step = GssapiClient(lambda: kerberos.initiate(self.alice, "b.example")).step(b"")
        assert isinstance(step, Challenge)
        return step.token


def settings(principal: str, keys: Path) -> KerberosSettings:
    keytab, renewal = Keytab("key", principal, str(keys)), Renewal(0.8, 0.05, 60)
    return KerberosSettings(keytab, "kafka", KerberosRules(["DEFAULT"]), renewal, True)


def library(now: Callable[[], float] = time.monotonic) -> Kerberos:
    from ottla_broker.security.kerberos import Kerberos

    return Kerberos(now, lambda: 0.0)


ALICE = (Complete(), Authenticated(Principal(USER, "alice")))


def _opened(directory: Path, **more: str | int) -> Iterator[Realm]:
    before = os.environ.get("KRB5_CONFIG")
    found = Realm(directory, **more)  # type: ignore[arg-type]
    os.environ.update(found.kdc.environment)
    try:
        yield found
    finally:
        found.kdc.stop()
        os.environ.pop("KRB5_CONFIG")
        if before is not None:
            os.environ["KRB5_CONFIG"] = before


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    yield from _opened(tmp_path_factory.mktemp("realm"))


@pytest.fixture
def own_realm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Realm]:
    """Of one test, with the keywords of its parameter."""
    yield from _opened(tmp_path / "realm", **getattr(request, "param", {}))


@pytest.fixture(scope="module")
def kerberos(realm: Realm) -> Kerberos:
    return library()


def test_a_client_with_a_ticket_gets_in(realm: Realm, kerberos: Kerberos) -> None:
    assert kerberos.default_realm == REALM
    assert realm.exchange(kerberos) == ALICE
    assert realm.exchange(kerberos) == ALICE


def test_a_service_that_nobody_knows_is_named(realm: Realm, kerberos: Kerberos) -> None:
    step, _ = realm.exchange(kerberos, host="c.example")
    assert isinstance(step, Failed)
    assert "not found in Kerberos database" in step.message
    step, _ = realm.exchange(kerberos, replace(realm.alice, service="broker"))
    assert isinstance(step, Failed)
    assert "not found in Kerberos database" in step.message


def test_a_ticket_for_another_service_is_refused(realm: Realm, kerberos: Kerberos) -> None:
    """The keytab has its key, but the listener is not that service."""
    realm.kdc.change_key("kafka/b.example", realm.service_keys)
    keys = realm.kdc.keytab("kafka/d.example")
    realm.service_keys.write_bytes(realm.service_keys.read_bytes() + keys.read_bytes()[2:])
    _, step = realm.exchange(kerberos, host="d.example")
    assert isinstance(step, Failed)
    assert step.detail
    assert realm.exchange(kerberos) == ALICE


def test_a_principal_that_nobody_knows_cannot_log_in(realm: Realm, kerberos: Kerberos) -> None:
    step, _ = realm.exchange(kerberos, settings(f"mallory@{REALM}", Path(realm.alice.keytab.file)))
    assert isinstance(step, Failed)
    assert step.message.startswith(f"mallory@{REALM} cannot log in with {realm.alice.keytab.file}: ")


def test_a_ticket_from_another_key_is_refused(realm: Realm, kerberos: Kerberos, tmp_path: Path) -> None:
    """The service's key was changed, and its keytab was not."""
    old = tmp_path / "old.keytab"
    keys = realm.kdc.keytab("kafka/e.example")
    old.write_bytes(keys.read_bytes())
    realm.kdc.change_key("kafka/e.example", keys)
    rules = realm.service.rules

    def outcome(file: Path) -> ServerStep:
        service = settings(f"kafka/e.example@{REALM}", file)
        one = GssapiClient(lambda: kerberos.initiate(realm.alice, "e.example")).step(b"")
        assert isinstance(one, Challenge)
        return GssapiServer(lambda: kerberos.accept(service), lambda name: rules.short_name(name, REALM)).step(
            one.token
        )

    step = outcome(old)
    assert isinstance(step, Failed)
    assert "key table entry" in step.detail or "kvno" in step.detail
    assert isinstance(outcome(keys), Challenge)


def test_who_has_seen_a_token_cannot_use_it(realm: Realm, kerberos: Kerberos) -> None:
    """And an honest client that is taken for one tries again: it is told nothing."""
    token = realm.first_token(kerberos)
    assert isinstance(realm.server(kerberos).step(token), Challenge)
    assert realm.server(kerberos).step(token) == Failed(detail="Request is a replay", is_told=False)


def test_a_replay_cache_that_was_tidied_away_begins_again(realm: Realm) -> None:
    kerberos = library()
    assert realm.exchange(kerberos) == ALICE
    shutil.rmtree(kerberos._directory.name)
    assert realm.exchange(kerberos) == ALICE
    token = realm.first_token(kerberos)
    assert isinstance(realm.server(kerberos).step(token), Challenge)
    assert isinstance(realm.server(kerberos).step(token), Failed)


def test_a_keytab_that_cannot_be_used_says_why(realm: Realm, kerberos: Kerberos, tmp_path: Path) -> None:
    broken = tmp_path / "broken.keytab"
    broken.write_bytes(b"no keytab")
    keys = str(realm.service_keys)
    for file, principal, reason in (
        (str(tmp_path / "gone"), SERVICE, "Key table file '.*/gone' not found"),
        (str(tmp_path), SERVICE, "Is a directory"),
        (str(broken), SERVICE, "Unsupported key table format version number"),
        (keys, f"kafka/c.example@{REALM}", f"No key table entry found for kafka/c.example@{REALM}"),
        (keys, "a@@", "Malformed representation of principal"),
    ):
        with pytest.raises(KerberosFailure, match=reason):
            kerberos.check(Keytab("key", principal, file))
    kerberos.check(Keytab("key", "kafka/b.example", keys))
    with pytest.raises(KerberosFailure, match="not found"):
        kerberos.accept(settings(SERVICE, tmp_path / "gone"))


@pytest.mark.parametrize("own_realm", [{"lifetime": "2s", "skew_s": 1}], indirect=True)
def test_a_token_that_comes_too_late_is_refused(own_realm: Realm) -> None:
    """By the clock of the service: that of the client is late, or its ticket has expired."""
    kerberos = library()
    tokens = [own_realm.first_token(kerberos) for _ in range(2)]
    made = time.time()
    for token, age_s, reason in zip(tokens, (2.5, 5), ("Clock skew too great", "Ticket expired"), strict=True):
        while time.time() < made + age_s:
            time.sleep(0.05)
        step = own_realm.server(kerberos).step(token)
        assert isinstance(step, Failed)
        assert (step.detail, step.is_told) == (reason, True)


# Logins


@pytest.mark.parametrize("own_realm", [{"lifetime": "3s"}], indirect=True)
def test_a_client_logs_in_again_before_its_ticket_ends(own_realm: Realm, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.security")
    client = replace(own_realm.alice, renewal=Renewal(0.5, 0, 0))
    kerberos = library()
    deadline = time.monotonic() + LIMIT_S
    while caplog.text.count("has logged in") < 5:
        assert own_realm.exchange(kerberos, client) == ALICE
        assert time.monotonic() < deadline


def test_a_client_keeps_its_ticket_while_nobody_gives_it_another(
    own_realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    kerberos = library(lambda: now)
    assert own_realm.exchange(kerberos) == ALICE
    own_realm.kdc.stop()
    now = 0.79 * 86400
    assert own_realm.exchange(kerberos) == ALICE
    assert not caplog.text
    for moved_s in (0.02 * 86400, 1, 59):
        now += moved_s
        assert own_realm.exchange(kerberos) == ALICE
        assert "cannot log in again, and keeps its ticket: Cannot contact any KDC" in caplog.text
    assert caplog.text.count("cannot log in again") == 2, "not more often than sasl.kerberos.min.time.before.relogin"
    now = 86400.0
    step, _ = own_realm.exchange(kerberos)
    assert isinstance(step, Failed)
    assert step.message.endswith(f"Cannot contact any KDC for realm '{REALM}'")
    own_realm.kdc.start()
    assert own_realm.exchange(kerberos) == ALICE


def test_a_ticket_is_not_used_behind_its_end_though_the_last_login_has_just_failed(
    own_realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="ottla.security")
    now = 0.0
    kerberos = library(lambda: now)
    assert own_realm.exchange(kerberos) == ALICE
    own_realm.kdc.stop()
    now = 86399.0
    assert own_realm.exchange(kerberos) == ALICE
    assert "cannot log in again" in caplog.text
    own_realm.kdc.start()
    now = 86400.0
    assert own_realm.exchange(kerberos) == ALICE
    assert caplog.text.count("has logged in") == 2


# Nonsense


@given(st.data())
def test_no_token_makes_a_step_raise(realm: Realm, kerberos: Kerberos, data: st.DataObject) -> None:
    """Some are what clients send, with a byte changed, cut or longer."""
    server = realm.server(kerberos)
    real = bytearray(realm.first_token(kerberos))
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["random", "changed", "cut", "longer", "empty"]))
        token = bytes(real)
        if kind == "random":
            token = data.draw(st.binary(max_size=200))
        elif kind == "changed":
            at = data.draw(st.integers(0, 2000)) % len(real)
            token = token[:at] + bytes([token[at] ^ data.draw(st.integers(1, 255))]) + token[at + 1 :]
        elif kind == "cut":
            token = token[: data.draw(st.integers(0, 2000)) % len(real)]
        elif kind == "longer":
            token += data.draw(st.binary(min_size=1, max_size=200))
        else:
            token = b""
        assert not isinstance(server.step(token), Authenticated)


def test_bad_tokens_of_any_size_leave_no_memory_behind(realm: Realm, kerberos: Kerberos) -> None:
    real = realm.first_token(kerberos)

    def spend() -> None:
        for number in range(500):
            server = realm.server(kerberos)
            server.step(real[: number % len(real)] + bytes(500_000 if number % 10 == 0 else 500))

    spend()
    before = resident_bytes()
    for _ in range(4):
        spend()
    assert resident_bytes() - before < 2 << 20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
