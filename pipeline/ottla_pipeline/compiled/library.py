"""The compiled library, loaded once in each process: its functions with their types, or why there is none.

Called by ctypes, which lets other threads run meanwhile. Arrays go in as addresses: the caller keeps them while a
function runs, and has checked their types.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla_pipeline.compiled import build

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of the C code, which documents their arguments."""

    decode: Callable[..., int]
    decode_headers: Callable[..., int]
    gather: Callable[..., None]
    encode: Callable[..., int]
    partitions_of_keys: Callable[..., None]


class NotCompiled(Exception):
    """There is no library that can be taken; the message says why."""


def functions() -> Functions | None:
    """The compiled functions of this process; None where numpy does the work."""
    return _found()[0]


def description() -> str:
    """One line for people: which way is taken, and why."""
    found, reason = _found()
    return f"records are decoded and encoded by {'compiled code' if found is not None else f'numpy: {reason}'}"


@functools.cache
def _found() -> tuple[Functions | None, str]:
    if os.environ.get(build.SWITCH, "").lower() == "off":
        return None, f"{build.SWITCH} is off"
    try:
        return load(build.LIBRARY), ""
    except NotCompiled as error:
        return None, str(error)


def load(path: Path) -> Functions:
    """The functions of a library. NotCompiled when it is missing, of other sources, or not for this machine."""
    try:
        library = ctypes.CDLL(str(path))
        digest = (ctypes.c_char * 16).in_dll(library, "ottla_source_digest").value.decode()
    except (OSError, ValueError) as error:
        if not path.exists():
            raise NotCompiled(
                "it was installed without a C compiler (python -m ottla_pipeline.compiled.build)"
            ) from None
        raise NotCompiled(f"{path.name} cannot be loaded: {error}") from error
    if digest != build.source_digest():
        raise NotCompiled(f"{path.name} was made of other sources (python -m ottla_pipeline.compiled.build)")

    def typed(name: str, result: Any, *arguments: Any) -> Any:
        function = library[name]
        function.restype, function.argtypes = result, arguments
        return function

    a, n = _ADDRESS, _NUMBER
    return Functions(
        decode=typed("ottla_decode", n, a, a, n, n, n, *[a] * 10),
        decode_headers=typed("ottla_decode_headers", n, a, a, a, n, *[a] * 6),
        gather=typed("ottla_gather", None, a, a, a, n, a, a, a),
        encode=typed("ottla_encode", n, *[a] * 12, n, a, n, a, a, a),
        partitions_of_keys=typed("ottla_partitions_of_keys", None, a, a, a, n, n, a),
    )
