"""A broker whose busiest modules are compiled by Cython, unchanged, for comparisons (decision 90: not shipped).

    python -m bench.compiled_broker build plain
    python -m bench.requests --system ours --against-command "python -m bench.compiled_broker run plain"

`build` writes a library for each module to build/compiled-broker, unless it is there; it needs Cython, which nothing
else here needs (`.venv/bin/uv pip install cython`; the next `make lint` removes it), a C compiler and Python's headers,
and takes minutes. `run plain FILE` is `ottla broker run FILE` with these libraries in place of the modules.

With `typed` instead of `plain`, classes with slots and without bases are compiled to extension types: their own methods
read and write the slots without a look-up.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

_PACKAGES = Path(__file__).parents[1] / "broker"
_LIBRARIES = Path(__file__).parents[1] / "build" / "compiled-broker"
_PREFIX = "ottla_broker."
_DIRECTIVES = ("language_level=3", "annotation_typing=False")
"""Annotations are for the type checker only, so that a compiled module accepts what the plain one does."""

MODULES = (
    *("adapters.disk", "adapters.disk_calls", "adapters.event_loop", "adapters.lane", "adapters.lane_calls"),
    *("adapters.socket_connection", "metrics", "protocol.codec", "protocol.generated.fetch"),
    *("protocol.generated.produce", "protocol.primitives", "records.batch", "replication.delayed"),
    *("replication.fetch.contexts", "replication.fetch.engine", "replication.fetch.partition_reads"),
    *("replication.fetch.session_fetch_state", "replication.partition", "server.edge.connection"),
    *("server.edge.dispatch", "server.handler_api", "server.handlers.fetch", "server.handlers.produce"),
    *("storage.files.indexes", "storage.files.segment", "storage.log.appender", "storage.log.flushing"),
    *("storage.log.log", "storage.log.producers", "storage.log.reader", "storage.log.state", "storage.log.writes"),
)
"""What a produce request or a fetch runs through, by name within `ottla_broker`. Without `adapters.buffers`: it counts
references, of which compiled code has one less, and would give a buffer that is in use to somebody else."""


_NEVER_TYPED = "protocol.generated."
"""Their readers make objects with `object.__new__`, which an extension type refuses."""


def _library(module: str, is_typed: bool) -> Path:
    """Where the library of a module is. Its name has the digest of the source: of another source it is another file."""
    digest = hashlib.sha256((" ".join(_DIRECTIVES)).encode() + (_PACKAGES / _source(module)).read_bytes())
    folder = _LIBRARIES / "typed" if is_typed else _LIBRARIES
    return folder / f"{module}.{digest.hexdigest()[:16]}{EXTENSION_SUFFIXES[0]}"


def _source(module: str) -> str:
    return f"ottla_broker/{module.replace('.', '/')}.py"


def _slot_declarations(text: str) -> str:
    """What Cython has to know to make extension types of the classes of a module: its .pxd file."""
    lines: list[str] = []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ClassDef) or node.bases or node.keywords or node.decorator_list:
            continue
        for part in node.body:
            if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "__slots__":
                lines.append(f"cdef class {node.name}:")
                lines += [f"    cdef public object {name}" for name in ast.literal_eval(part.value)]
    return "\n".join(lines)


def _compile(module: str, is_typed: bool) -> None:
    library = _library(module, is_typed)
    if library.exists():
        return
    with tempfile.TemporaryDirectory(dir=_LIBRARIES) as work:
        source, c_code, made = Path(work) / _source(module), Path(work) / "module.c", Path(work) / library.name
        source.parent.mkdir(parents=True)
        for package in source.relative_to(work).parents[:-1]:
            (Path(work) / package / "__init__.py").touch()
        shutil.copy(_PACKAGES / _source(module), source)
        if is_typed and not module.startswith(_NEVER_TYPED):
            source.with_suffix(".pxd").write_text(_slot_declarations(source.read_text()))
        line = [sys.executable, "-m", "cython", *(part for one in _DIRECTIVES for part in ("-X", one))]
        line += ["--module-name", _PREFIX + module, "--output-file", str(c_code), _source(module)]
        subprocess.run(line, cwd=work, check=True)
        flags = ["-O2", "-fPIC", "-shared", "-g0", "-w", "-fwrapv", f"-I{sysconfig.get_path('include')}"]
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(made), str(c_code)], check=True)
        made.rename(library)


class _Finder(MetaPathFinder):
    """Finds the libraries of `MODULES`, and no other module."""

    def __init__(self, is_typed: bool) -> None:
        self._is_typed = is_typed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = fullname.removeprefix(_PREFIX)
        if module not in MODULES or module == fullname:
            return None
        library = str(_library(module, self._is_typed))
        return spec_from_file_location(fullname, library, loader=ExtensionFileLoader(fullname, library))


def main() -> None:
    """See the module."""
    command, way, *rest = (*sys.argv[1:], "", "")
    is_typed = way == "typed"
    if command == "build" and way in ("plain", "typed"):
        (_LIBRARIES / "typed").mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(partial(_compile, is_typed=is_typed), MODULES))
    elif command == "run" and way in ("plain", "typed"):
        missing = [module for module in MODULES if not _library(module, is_typed).exists()]
        if missing:
            sys.exit(f"not compiled: {', '.join(missing)} (python -m bench.compiled_broker build {way})")
        sys.meta_path.insert(0, _Finder(is_typed))
        from ottla.cli.main import app

        app(["broker", "run", *filter(None, rest)])
    else:
        sys.exit("usage: python -m bench.compiled_broker build|run plain|typed [FILE]")


if __name__ == "__main__":
    main()
