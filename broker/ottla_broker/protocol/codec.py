"""Framing and headers around the generated messages: the only module of `protocol` that frames messages.

Lives here: which API has which versions and headers, the request and response headers themselves, the length
prefix. Not here: message bodies (`generated/`), sockets. Pure: buffers in, values out, and back.

A frame is what follows the four-byte length on the wire. The generated module of an API is imported when it is first
used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.index import APIS
from ottla_broker.protocol.primitives import (
    ZERO_UUID,
    Chunk,
    DecodeError,
    EncodeError,
    FileRangeLike,
    Records,
    UnsupportedVersionError,
    chunk_length,
    read_uvarint,
    skip_tags,
)
from ottla_broker.protocol.slices import SlicedResponse

__all__ = [
    "ZERO_UUID",
    "ApiSpec",
    "Chunk",
    "DecodeError",
    "EncodeError",
    "FileRangeLike",
    "Records",
    "RequestHeader",
    "UnsupportedVersionError",
    "chunk_length",
    "defined",
    "frame_body",
    "frame_request",
    "frame_response",
    "module",
    "read_request_header",
    "read_response_frame",
    "spec",
    "write_response_in_slices",
]

_FIXED: Final = struct.Struct(">hhi")
_FIXED_AND_CLIENT: Final = struct.Struct(">hhih")
_ID: Final = struct.Struct(">i")
_ID_AND_TAGS: Final = struct.Struct(">ib")

MERGE_BELOW_BYTES: Final = 65536
"""A first chunk up to this size is joined with the header before it: one buffer less for the socket."""


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """Versions and headers of one API by its definition; not what a broker advertises."""

    api_key: ApiKey
    name: str
    module_name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    """First version with compact lengths and tag sections, None where there is none (KIP-482)."""

    def request_header_version(self, version: int) -> int:
        """0 (no client id: ControlledShutdown 0 alone), 1, or 2 in flexible versions."""
        if self.flexible_from is not None and version >= self.flexible_from:
            return 2
        return 0 if version == 0 and self.api_key == ApiKey.CONTROLLED_SHUTDOWN else 1

    def response_header_version(self, version: int) -> int:
        """1 in flexible versions, else 0.

        ApiVersions is always 0: the client may not know the broker's versions yet.
        """
        if self.api_key == ApiKey.API_VERSIONS or self.flexible_from is None:
            return 0
        return 1 if version >= self.flexible_from else 0


_SPECS: Final = {
    key: ApiSpec(ApiKey(key), name, module_name, first, last, flexible_from)
    for key, name, module_name, first, last, flexible_from in APIS
}
_NEVER: Final = 1 << 15
_FLEXIBLE_RESPONSES_FROM: Final = {
    key: next((version for version in range(one.max_version + 1) if one.response_header_version(version)), _NEVER)
    for key, one in _SPECS.items()
}
"""The first version whose responses have header 1, by API key."""


class RequestHeader:
    """The header of a request, and where its body begins."""

    __slots__ = ("api_key", "api_version", "body_offset", "client_id", "correlation_id")

    def __init__(
        self, api_key: ApiKey, api_version: int, correlation_id: int, client_id: str | None, body_offset: int
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset

    def __repr__(self) -> str:
        return (
            f"RequestHeader({self.api_key.name} v{self.api_version}, correlation_id={self.correlation_id},"
            f" client_id={self.client_id!r}, body_offset={self.body_offset})"
        )


def defined() -> tuple[ApiSpec, ...]:
    """Every API that has a definition, by key."""
    return tuple(_SPECS.values())


def spec(api_key: int) -> ApiSpec:
    """Versions and headers of an API. KeyError for one without a definition."""
    return _SPECS[api_key]


@cache
def module(api_key: int) -> ModuleType:
    """The generated module of an API, imported on first use. KeyError for one without a definition."""
    return import_module(f"ottla_broker.protocol.generated.{_SPECS[api_key].module_name}")


def read_request_header(buffer: memoryview) -> RequestHeader:
    """Header of the request in `buffer`, a frame without its length.

    Raises UnsupportedVersionError, which carries key, version and correlation id, for an API or version without a
    definition, and DecodeError for anything that is no header.
    """
    try:
        if len(buffer) >= 10:
            api_key, version, correlation_id, size = _FIXED_AND_CLIENT.unpack_from(buffer)
        else:
            api_key, version, correlation_id = _FIXED.unpack_from(buffer)
            size = -2
        found = _SPECS.get(api_key)
        if found is None or not found.min_version <= version <= found.max_version:
            raise UnsupportedVersionError(api_key, version, correlation_id)
        header_version = found.request_header_version(version)
        if header_version == 0:
            return RequestHeader(found.api_key, version, correlation_id, None, 8)
        offset = 10
        client_id: str | None = None
        if size >= 0:
            offset += size
            client_id = buffer[10:offset].tobytes().decode()
        elif size != -1:
            raise DecodeError("the client id is missing or has a negative length")
        if header_version == 2:
            tags, offset = read_uvarint(buffer, offset)
            if tags:
                offset = skip_tags(buffer, offset, tags)
        if offset > len(buffer):
            raise DecodeError("the client id runs over the end")
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"no request header ({error})") from error
    return RequestHeader(found.api_key, version, correlation_id, client_id, offset)


def frame_request(api_key: int, version: int, correlation_id: int, client_id: str | None, request: Any) -> list[Chunk]:
    """Chunks of a request with its header and length prefix. Raises EncodeError."""
    header_version = _SPECS[api_key].request_header_version(version)
    header = _FIXED.pack(api_key, version, correlation_id)
    if header_version:
        if client_id is None:
            header += b"\xff\xff"
        else:
            name = client_id.encode()
            header += len(name).to_bytes(2, "big") + name
    if header_version == 2:
        header += b"\0"
    return _frame(header, module(api_key).write_request(version, request))


def frame_response(api_key: int, version: int, correlation_id: int, response: Any) -> list[Chunk]:
    """Chunks of a response with its header and length prefix. Raises EncodeError.

    `response`: of the API's generated class, or a `SlicedResponse` of it.
    """
    chunks: list[Chunk]
    if response.__class__ is SlicedResponse:
        chunks = response.chunks(version)
    else:
        chunks = module(api_key).write_response(version, response)
    return frame_body(api_key, version, correlation_id, chunks)


def write_response_in_slices(api_key: int, version: int, response: Any, chunks: list[Chunk]) -> Iterator[None]:
    """Appends the chunks of the body to `chunks`, slice by slice: yields behind each. Raises EncodeError."""
    if response.__class__ is SlicedResponse:
        chunks += response.chunks(version)
        return
    yield from module(api_key).write_response_in_slices(version, response, chunks)


def frame_body(api_key: int, version: int, correlation_id: int, chunks: list[Chunk]) -> list[Chunk]:
    """The chunks of the body of a response with its header and length prefix."""
    is_flexible = version >= _FLEXIBLE_RESPONSES_FROM[api_key]
    return _frame(_ID_AND_TAGS.pack(correlation_id, 0) if is_flexible else _ID.pack(correlation_id), chunks)


def read_response_frame(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """(correlation id, response) of a response frame without its length. Raises DecodeError."""
    try:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        offset = 4
        if _SPECS[api_key].response_header_version(version):
            tags, offset = read_uvarint(frame, 4)
            if tags:
                offset = skip_tags(frame, offset, tags)
        elif len(frame) < 4:
            raise DecodeError("the response is shorter than its header")
    except IndexError as error:
        raise DecodeError("the response is shorter than its header") from error
    return correlation_id, module(api_key).read_response(version, frame, offset)


def _frame(header: bytes, chunks: list[Chunk]) -> list[Chunk]:
    """Put the length and the header before the chunks of a body."""
    size = len(header)
    for chunk in chunks:
        kind = chunk.__class__
        # Written out for the two kinds that a fetch response has by the hundred.
        if kind is bytes:
            size += len(chunk)  # type: ignore[arg-type]
        elif kind is memoryview:
            size += chunk.nbytes  # type: ignore[union-attr]
        else:
            size += chunk_length(chunk)
    header = size.to_bytes(4, "big") + header
    if chunks:
        first = chunks[0]
        if first.__class__ is bytes and len(first) <= MERGE_BELOW_BYTES:
            chunks[0] = header + first
            return chunks
    chunks.insert(0, header)
    return chunks
