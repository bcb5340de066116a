"""The settings that docs/operating/security.md prints can be used as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.properties import parse_properties
from ottla_broker.config.sasl import SASL_PROTOCOLS, own_login, sasl_settings
from ottla_broker.security.client_settings import client_security
from ottla_broker.security.oauth.logins import TokenLogin
from ottla_broker.security.oauth.validation import SignedTokens

PAGE = Path(__file__).parents[2] / "docs/operating/security.md"


def blocks() -> Iterator[dict[str, str]]:
    for block in re.findall(r"^```properties\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield parse_properties(block)


BROKERS = [block for block in blocks() if "listeners" in block]
CLIENTS = [block for block in blocks() if "security.protocol" in block]


@pytest.mark.parametrize("block", BROKERS)
def test_a_broker_takes_them(block: dict[str, str]) -> None:
    config = BrokerConfig.from_mapping(block)
    assert config.unknown_keys == ()
    for endpoint in config.listeners.bound:
        if endpoint.security_protocol in SASL_PROTOCOLS:
            assert sasl_settings(config, endpoint.listener).mechanisms


@pytest.mark.parametrize("block", CLIENTS)
def test_a_client_takes_them(block: dict[str, str]) -> None:
    if "tokenauth" in block.get("sasl.jaas.config", ""):
        pytest.skip("a delegation token is for the clients of others")
    if block.get("sasl.mechanism") == "GSSAPI":
        pytest.skip("Kerberos is for the clients of others")
    found = client_security(block)
    assert (found.login is not None) == block["security.protocol"].startswith("SASL")


def test_tokens_of_an_identity_provider_are_among_them() -> None:
    found = [BrokerConfig.from_mapping(block) for block in BROKERS if "OAUTHBEARER" in block.values()]
    assert len(found) == 1
    tokens = sasl_settings(found[0], "CLIENTS").tokens
    assert isinstance(tokens, SignedTokens)
    assert (tokens.rules.audiences, tokens.rules.issuer) == (("kafka",), "https://idp.example")
    assert isinstance(own_login(found[0], "BROKERS"), TokenLogin)
    assert isinstance(next(client_security(one).login for one in CLIENTS if "OAUTHBEARER" in one.values()), TokenLogin)
