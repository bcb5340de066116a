"""TLS to an identity provider: the `ssl.*` options of a JAAS line, as Apache Kafka has them there. Pure.

The trust store of a listener is for its clients, and says nothing about the provider.

Source: org.apache.kafka.common.security.oauthbearer.internals.secured.JaasOptionsUtils.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.security.client_tls import client_tls
from ottla_broker.security.oauth.addresses import Address
from ottla_broker.security.tls_settings import TlsSettings


def provider_tls(address: Address, options: Mapping[str, str]) -> TlsSettings | None:
    """None without https. Without a trust store among the options the authorities of the system are trusted.

    Raises:
        TlsError: options do not fit together.
    """
    if not address.is_https:
        return None
    return client_tls({name: value for name, value in options.items() if name.startswith("ssl.")})
