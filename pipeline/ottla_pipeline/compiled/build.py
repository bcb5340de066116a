"""Compiles the C code of this package: `python -m ottla_pipeline.compiled.build`. Standard library only.

`hatch_build.py` calls it for a wheel and for `make setup`. It needs a C compiler and no headers of Python: the library
knows plain memory only, so it is for every version of Python. Without a compiler numpy does the work.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE / "records.so"
SWITCH = "OTTLA_COMPILED"
"""The variable whose value `off` stands for numpy: when a package is built, and when it runs."""

_COMPILED = ("decoding.c", "encoding.c")
_SOURCES = (*_COMPILED, "varints.h")
_FLAGS = ("-std=c99", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra")


def source_digest() -> str:
    """A digest of the C code: the library has the one that it was compiled from."""
    found = hashlib.sha256()
    for name in _SOURCES:
        found.update((HERE / name).read_bytes())
    return found.hexdigest()[:16]


def compile_library(target: Path = LIBRARY, extra_flags: tuple[str, ...] = ()) -> str | None:
    """Writes the library to `target`. None when it is there, else why not."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or shutil.which(compiler[0]) is None:
        return f"there is no C compiler ({' '.join(compiler) or 'CC is empty'})"
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        made = Path(work) / target.name
        stamp = Path(work) / "digest.c"
        stamp.write_text(f'const char ottla_source_digest[] = "{source_digest()}";\n')
        sources = [str(HERE / name) for name in _COMPILED]
        done = subprocess.run(
            [*compiler, *_FLAGS, *extra_flags, "-o", str(made), *sources, str(stamp)], capture_output=True, text=True
        )
        if done.returncode:
            return f"the C compiler fails: {done.stderr.strip()[-2000:]}"
        made.replace(target)  # whoever has the old one open keeps it
    return None


if __name__ == "__main__":
    problem = compile_library()
    if problem is not None:
        sys.exit(f"not compiled: {problem}")
    print(f"compiled: {LIBRARY}")
