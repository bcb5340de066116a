"""The options `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*`, which readers and writers share. Pure.

The keys are those of the broker's own package (`client_settings`), in the spelling of Java's clients or of librdkafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla_broker.security.client_settings import (
    KEYS,
    SECRET_KEYS,
    ClientSecurity,
    check_key,
    client_security,
    is_security_key,
)
from ottla_broker.security.tls_settings import TlsError
from ottla_pipeline.errors import OptionError

PREFIX = "kafka."
SECURITY_OPTIONS = tuple(PREFIX + key for key in KEYS)
SECRET_OPTIONS = frozenset(PREFIX + key for key in SECRET_KEYS)
"""Options whose values are shown nowhere."""
_KEY = re.compile(r"(?<![\w.])(?=(?:ssl|sasl|security|enable\.ssl)\.)")
"""Where a key begins in a sentence."""


def is_security_option(name: str) -> bool:
    """Whether an option says how connections are secured, known or not."""
    return name.startswith(PREFIX) and is_security_key(name.removeprefix(PREFIX))


def check_security_option(name: str) -> None:
    """OptionError for an option of `is_security_option` that cannot be given."""
    try:
        check_key(name.removeprefix(PREFIX))
    except TlsError as error:
        raise option_error(error) from None


def parse_security(given: Mapping[str, str]) -> ClientSecurity:
    """What the options of `is_security_option` among these say. OptionError names the first one that is wrong."""
    try:
        return client_security(
            {name.removeprefix(PREFIX): value for name, value in given.items() if is_security_option(name)}
        )
    except TlsError as error:
        raise option_error(error) from None


def option_error(error: TlsError) -> OptionError:
    """The error in the words of the options.

    >>> str(option_error(TlsError("ssl.key.location", "/k", "give its password in ssl.key.password")))
    'option kafka.ssl.key.location: /k: give its password in kafka.ssl.key.password'
    """
    reason = _KEY.sub(PREFIX, error.reason)
    return OptionError(PREFIX + error.key, f"{error.file}: {reason}" if error.file else reason)
