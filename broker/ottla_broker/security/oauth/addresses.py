"""Where keys and tokens come from: an address of http or https, or a file. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, or of a file.

    Args:
        url: of a server; "" for a file.
        path: of a file; "" for a server.
    """

    url: str = ""
    path: str = ""

    @property
    def is_https(self) -> bool:
        return self.url[:6].lower() == "https:"


def parse_address(text: str) -> Address:
    """Raises ValueError, with what is allowed.

    >>> parse_address("file:///etc/ottla/keys.json").path
    '/etc/ottla/keys.json'
    """
    text = text.strip()
    try:
        found = urlsplit(text)
        host, scheme, user = found.hostname, found.scheme, found.username
        found.port  # noqa: B018 - raises where it is none
    except ValueError:
        host, scheme, user = None, "", None
    if scheme in ("http", "https") and host and user is None and re.fullmatch("[!-~]+", text):
        return Address(url=text)
    if scheme == "file" and host in (None, "localhost") and found.path not in ("", "/"):
        return Address(path=unquote(found.path))
    raise ValueError("an address such as https://idp.example/keys, or a file such as file:///etc/ottla/keys.json")
