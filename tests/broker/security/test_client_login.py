"""How a client logs in by a token: keys of Java's clients and of librdkafka, and which do not fit together."""

from __future__ import annotations

import pytest

from ottla_broker.security.client_settings import client_security
from ottla_broker.security.oauth.addresses import Address
from ottla_broker.security.oauth.logins import ClientGrant, TokenFile, TokenLogin
from ottla_broker.security.oauth.unsecured import UnsecuredClaims
from ottla_broker.security.sasl.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE
from ottla_broker.security.tls_settings import TlsError

URL = "sasl.oauthbearer.token.endpoint.url"
UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
JAAS = f'{OAUTHBEARER_MODULE} required clientId="a" clientSecret="hunter" scope="s" extension_x="y";'
UNSIGNED = f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="alice";'
PROVIDER = {URL: "http://idp/token"}


def login(**given: str) -> TokenLogin:
    found = client_security({**SASL, **given}).login
    assert isinstance(found, TokenLogin)
    return found


@pytest.mark.parametrize(
    "keys",
    [
        {"sasl.jaas.config": JAAS},
        {
            "sasl.jaas.config": JAAS,
            "sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
            ),
        },
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "a",
            "sasl.oauthbearer.client.secret": "hunter",
            "sasl.oauthbearer.scope": "s",
            "sasl.oauthbearer.extensions": "x=y",
        },
    ],
)
def test_a_token_of_an_identity_provider_in_either_spelling(keys: dict[str, str]) -> None:
    found = login(**PROVIDER, **keys)
    assert found == TokenLogin(ClientGrant(Address(url="http://idp/token"), "a", "hunter", "s"), (("x", "y"),))
    assert "hunter" not in repr(client_security({**SASL, **PROVIDER, **keys}))


def test_tls_to_the_identity_provider_is_an_option_of_the_jaas_line() -> None:
    line = JAAS.replace(";", ' ssl.truststore.location="/idp.pem" ssl.truststore.type="PEM";')
    origin = login(**{URL: "https://idp/token", "sasl.jaas.config": line, "ssl.ca.location": "/brokers.pem"}).origin
    assert isinstance(origin, ClientGrant) and origin.tls is not None and origin.tls.trust_store is not None
    assert origin.tls.trust_store.location == "/idp.pem"


def test_a_token_in_a_file_and_one_that_nobody_has_signed() -> None:
    assert login(**{URL: "file:///run/token"}).origin == TokenFile("/run/token")
    assert login(**{UNSECURED: "true", "sasl.jaas.config": UNSIGNED}).origin == UnsecuredClaims((("sub", "alice"),))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, f"{URL}: is not given"),
        (
            {"sasl.jaas.config": f"{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub=a;"},
            f"{URL}: is not given",
        ),
        ({URL: "hunter"}, f"{URL}: must be an address such as"),
        (PROVIDER, f"{URL}: it has no clientId"),
        ({**PROVIDER, "sasl.oauthbearer.client.id": "a"}, f"{URL}: it has no clientSecret"),
        (
            {**PROVIDER, "sasl.jaas.config": f"{OAUTHBEARER_MODULE} required clientId=a;"},
            "sasl.jaas.config: it has no clientSecret",
        ),
        (
            {**PROVIDER, "sasl.jaas.config": f"{PLAIN_MODULE} required;"},
            "sasl.jaas.config: the login module org.apache",
        ),
        (
            {**PROVIDER, "sasl.jaas.config": JAAS, "sasl.oauthbearer.client.id": "a"},
            "sasl.oauthbearer.client.id: must not be given beside sasl.jaas.config",
        ),
        ({**PROVIDER, "sasl.username": "a"}, "sasl.username: has no effect with OAUTHBEARER"),
        ({**PROVIDER, "sasl.oauthbearer.method": "x"}, "sasl.oauthbearer.method: must be oidc"),
        ({**PROVIDER, "sasl.oauthbearer.extensions": "x"}, "sasl.oauthbearer.extensions: must be NAME=VALUE"),
        ({**PROVIDER, "sasl.oauthbearer.config": "principal=hunter"}, "sasl.oauthbearer.config: is unknown"),
        (
            {**PROVIDER, "sasl.login.callback.handler.class": "x.Y"},
            "sasl.login.callback.handler.class: must be org.apache.kafka",
        ),
        ({UNSECURED: "yes"}, f"{UNSECURED}: must be true or false"),
        ({UNSECURED: "true"}, f"{URL}: it has no unsecuredLoginStringClaim_sub"),
        ({**PROVIDER, "sasl.mechanism": "PLAIN"}, f"{URL}: is for OAUTHBEARER, and the mechanism is PLAIN"),
        (
            {URL: "https://idp/", "sasl.jaas.config": JAAS.replace(";", " ssl.truststore.type=hunter;")},
            "sasl.jaas.config: ssl.truststore.type: must be of JKS",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_key(given: dict[str, str], message: str) -> None:
    with pytest.raises(TlsError) as caught:
        client_security({**SASL, **given})
    assert message in str(caught.value)
    assert "hunter" not in str(caught.value)
