"""How passwords of the dynamic configuration are stored: the `password.encoder.*` keys. Pure.

Source: kafka.server.DynamicBrokerConfig, PasswordEncoderConfigs.
"""

from __future__ import annotations

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.types import ConfigError
from ottla_broker.security.password_encoder import CIPHERS, KEY_FACTORIES, KEY_FACTORY, KEY_LENGTHS, PasswordEncoder

_PREFIX = "password.encoder"


def password_encoder(values: BrokerValues) -> PasswordEncoder | None:
    """None without password.encoder.secret: no password can be stored, and none be read.

    Raises:
        ConfigError: an algorithm or a length is not served.
    """
    cipher = values.by_name[f"{_PREFIX}.cipher.algorithm"]
    factory = values.by_name[f"{_PREFIX}.keyfactory.algorithm"] or KEY_FACTORY
    length = values.by_name[f"{_PREFIX}.key.length"]
    for key, value, allowed in (
        ("cipher.algorithm", cipher, CIPHERS),
        ("keyfactory.algorithm", factory, KEY_FACTORIES),
        ("key.length", length, KEY_LENGTHS),
    ):
        if value not in allowed:
            raise ConfigError(f"{_PREFIX}.{key}", value, f"of {', '.join(map(str, allowed))}")
    secret = values.by_name[f"{_PREFIX}.secret"]
    if not secret:
        return None
    return PasswordEncoder(
        secret,
        values.by_name[f"{_PREFIX}.old.secret"] or None,
        cipher,
        factory,
        length,
        values.by_name[f"{_PREFIX}.iterations"],
    )
