"""The programs of Kubernetes: where they are once they were built, and building them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

from e2e.machine import CommandFailed
from ottla.local.jars import cache_directory

CHECKOUT = Path(__file__).resolve().parent.parent
SOURCES = CHECKOUT / "e2e" / "kubernetes"
BUILD_SCRIPT = CHECKOUT / "scripts" / "build-kubernetes.sh"
BUILT_FROM = ("go.mod", "go.sum", "main.go", "coredns/main.go")


def folder() -> Path:
    """Where scripts/build-kubernetes.sh puts them: the name holds the release and a hash of what is built."""
    helm = re.search(r"^helm_version=(\S+)$", BUILD_SCRIPT.read_text(), re.MULTILINE)
    release = re.search(r"^\tk8s\.io/kubernetes v(\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    assert helm is not None and release is not None, "the script and go.mod name their versions"
    content = b"".join((SOURCES / name).read_bytes() for name in BUILT_FROM) + f"{helm[1]}\n".encode()
    return cache_directory() / "kubernetes" / f"{release[1]}-{hashlib.sha256(content).hexdigest()[:10]}"


def are_built() -> bool:
    return (folder() / "kubernetes").exists()


def build() -> Path:
    """Builds what is missing: ten minutes the first time. Raises CommandFailed; says what it does as it goes."""
    if not are_built() and subprocess.run([BUILD_SCRIPT], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        raise CommandFailed(f"{BUILD_SCRIPT.relative_to(CHECKOUT)} failed, see above")
    assert are_built(), "the script and this module name the same folder"
    return folder()


def path_with(binaries: Path) -> str:
    """PATH with these programs first."""
    return f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
