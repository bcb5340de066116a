"""The most used modules of the simulator, compiled by mypyc for long campaigns: a fifth more seeds per minute.

The broker's code is not compiled. The runs do not change: `determinism --compiled` shows that the trace of a seed is
the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from simulation import loop

SOURCES = Path(__file__).parent
CHECKOUT = SOURCES.parent
MODULES = (
    "batches", "client", "clock", "coordination", "disk", "oracle", "fetch_session", "filesystem", "loop",
    "network", "replica_views", "workload", "world",
)  # fmt: skip
"""What takes the time. Compiled all together, scenarios included, the interpreter crashed."""


class CompileError(Exception):
    """mypyc or the C compiler did not do it."""


def is_compiled() -> bool:
    """Does this process run the compiled modules?"""
    return Path(str(loop.__file__)).suffix != ".py"


def build(target: Path) -> Path:
    """A directory that holds the package `simulation`, compiled; takes a minute unless these sources are there already.

    Args:
        target: Where such directories are, one for each state of the sources and each Python.

    Raises:
        CompileError: with the end of what the compiler said.
    """
    digest = hashlib.blake2b(sys.version.encode(), digest_size=8)
    files = sorted(path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for path in files:
        digest.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
    done = target / digest.hexdigest()
    if done.exists():
        return done
    making = target / f"making-{digest.hexdigest()}"
    shutil.rmtree(making, ignore_errors=True)  # of one that was cut off
    shutil.copytree(SOURCES, making / "simulation", ignore=shutil.ignore_patterns("__pycache__"))
    modules = [f"simulation/{name}.py" for name in MODULES]
    mypyc = Path(sys.executable).with_name("mypyc")
    result = subprocess.run(
        [mypyc, *modules],
        cwd=making,
        env=os.environ | {"MYPYPATH": str(CHECKOUT / "broker")},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        end = "\n".join((result.stdout + result.stderr).strip().splitlines()[-15:])
        raise CompileError(f"{end}\nIt takes a C compiler and Python's headers: apt-get install gcc python3-dev.")
    shutil.rmtree(making / "build")  # the C code
    making.rename(done)  # others stay: a campaign may be using them
    return done


def environment(directory: Path) -> dict[str, str]:
    """In which `python -P` imports what `build` gave; without -P the working directory's package would come first."""
    paths = [str(directory), str(CHECKOUT / "broker"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_again(directory: Path) -> int:
    """This very command once more, with what `build` gave; its exit status."""
    return subprocess.call([sys.executable, "-P", "-m", "simulation", *sys.argv[1:]], env=environment(directory))
