"""The images of a cluster, built without a daemon: ours, ZooKeeper's, a client's, and the pause of every pod.

Each is an archive in the cache whose name holds a hash of what it was made from, so that an unchanged one is not made
again, and whose tag is that hash, so that a pod can only run what was asked for.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.binaries import CHECKOUT
from e2e.machine import CommandFailed, run
from e2e.nodes import PAUSE_IMAGE
from ottla.local.jars import cache_directory

SUITE, SUITE_PYTHON = "bookworm", (3, 11)
OF_OTTLA = ("broker", "documents", "operator", "command")
PACKAGES = ("python3", "python3-pip", "python-is-python3", "bash", "procps")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
JAVA_MODULES = (
    "java.base,java.logging,java.management,java.naming,java.security.sasl,java.security.jgss,java.sql,jdk.unsupported"
)
SPARK_JAVA_MODULES = (
    "java.se,jdk.unsupported,jdk.incubator.vector,jdk.management,jdk.crypto.ec,jdk.security.auth,jdk.security.jgss,"
    "jdk.zipfs,jdk.net,jdk.nio.mapmode,jdk.naming.dns,jdk.httpserver"
)
JAVA_DIR = "/opt/java"
CLIENTS = ("confluent-kafka", "kafka-python")
SOURCES = CHECKOUT / "e2e" / "images"
JARS = "zookeeper-image-jars"
PROGRAMS = ("records.py", "fleet_load.py")
"""What fleet_load.py needs of tests/nemesis."""


@dataclass(frozen=True, slots=True)
class Image:
    """A name with its tag, and the archive that holds it (None: a registry has it)."""

    name: str
    tag: str
    archive: Path | None = None

    @property
    def reference(self) -> str:
        return f"{self.name}:{self.tag}"


@dataclass(frozen=True, slots=True)
class ImageSet:
    ottla: Image
    zookeeper: Image
    client: Image
    pause: Image | None = None
    pipeline: Image | None = None
    """Of the drivers of pipelines, with Spark; built only when it is asked for."""

    def archives(self) -> list[Path]:
        """The archives of the images that were built here."""
        images = (self.pause, self.ottla, self.zookeeper, self.client, self.pipeline)
        return [image.archive for image in images if image is not None and image.archive is not None]


def build_images(step: Callable[[str], object], *, with_pipelines: bool = False) -> ImageSet:
    """Builds all images. Raises CommandFailed with the command that failed.

    Args:
        step: gets what is being built.
        with_pipelines: also the image with Spark, of 1.2 GB.
    """
    if sys.version_info[:2] != SUITE_PYTHON:
        raise CommandFailed(f"the image of Debian's {SUITE} has Python {SUITE_PYTHON}: make .venv with it (PYTHON=…)")
    builder = _Builder()
    pause = builder.image("pause", PAUSE_IMAGE.rpartition(":")[2], [SOURCES / "pause"], _pause, step)
    base = builder.base(step)
    ours = [CHECKOUT / name for name in ("Dockerfile", "requirements/operator.txt", *OF_OTTLA)]
    ottla = builder.image("ottla", None, [*ours, base], lambda folder: builder.ottla(base, folder), step)
    scripts = [CHECKOUT / "scripts" / "jars" / "zookeeper-image", SOURCES / "zookeeper", base]
    zookeeper = builder.image("zookeeper", None, scripts, lambda folder: builder.zookeeper(base, folder), step)
    locked = [SOURCES / "client", *load_modules(), CHECKOUT / "requirements" / "dev.txt", base]
    client = builder.image("client", None, locked, lambda folder: builder.client(base, folder), step)
    pipeline = None
    if with_pipelines:
        names = ("Dockerfile.pipeline", "requirements/pipeline.txt", *OF_OTTLA, "pipeline")
        spark = [*(CHECKOUT / name for name in names), base]
        pipeline = builder.image("pipeline", None, spark, lambda folder: builder.pipeline(base, folder), step)
    return ImageSet(ottla, zookeeper, client, pause, pipeline)


def load_modules() -> list[Path]:
    """What the programs of the client's image import of tests/, and what that imports: clients, history, checkers."""
    found: dict[Path, None] = {CHECKOUT / "tests" / "__init__.py": None}
    wanted = [SOURCES / "client" / program for program in PROGRAMS]
    while wanted:
        for node in ast.walk(ast.parse(wanted.pop().read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests."):
                module = CHECKOUT.joinpath(*node.module.split(".")).with_suffix(".py")
                if module not in found:
                    wanted.append(module)
                    found |= {module.parent / "__init__.py": None, module: None}
    return list(found)


def fingerprint(paths: Iterable[Path]) -> str:
    """A short hash of files and of what folders hold; a base archive counts by its name, which holds its own hash."""
    found = hashlib.sha256()
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            found.update(str(file.relative_to(path.parent)).encode() + b"\0")
            if file.suffix != ".tar":
                found.update(file.read_bytes() + b"\0")
    return found.hexdigest()[:10]


class _Builder:
    def __init__(self) -> None:
        self._cache = cache_directory() / "e2e"
        self._archives = self._cache / "images"
        self._archives.mkdir(parents=True, exist_ok=True)

    def image(
        self,
        name: str,
        tag: str | None,
        sources: Sequence[Path],
        make: Callable[[Path], None],
        step: Callable[[str], object],
    ) -> Image:
        """`make` gets a folder to work in and has to leave `rootfs.tar` or a build context there."""
        key = fingerprint(sources)
        image = Image(f"localhost/{name}", tag or key, self._archives / f"{name}-{key}.tar")
        assert image.archive is not None
        if image.archive.exists():
            return image
        step(f"image {name}")
        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            make(Path(folder))
            if (rootfs := Path(folder, "rootfs.tar")).exists():
                self._from_rootfs(image, rootfs)
            self._push(image, Path(folder, "image"))
            for old in self._archives.glob(f"{name}-*.tar"):
                old.unlink()
            Path(folder, "image").rename(image.archive)
        return image

    def base(self, step: Callable[[str], object]) -> Path:
        """A root file system with Python, as an archive. Debian packages, downloaded once."""
        key = hashlib.sha256(repr((SUITE, PACKAGES, LEFT_OUT)).encode()).hexdigest()[:10]
        archive = self._cache / f"base-{key}.tar"
        if not archive.exists():
            step("base image from Debian packages, one to two minutes, once")
            partial = archive.with_suffix(".partial.tar")
            leave_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
            # The mirror's address and the lists are this machine's matter, not the image's.
            clean = 'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*; : > "$1"/etc/apt/sources.list'
            include = f"--include={','.join(PACKAGES)}"
            run(
                ["mmdebstrap", "--quiet", "--variant=minbase", include, *leave_out, f"--customize-hook={clean}",
                 SUITE, partial],
                timeout_s=600,
            )  # fmt: skip
            partial.rename(archive)
        return archive

    def ottla(self, base: Path, folder: Path) -> None:
        run([CHECKOUT / "scripts" / "build-wheels.sh"], timeout_s=600)
        shutil.copytree(CHECKOUT / "build" / "wheels", folder / "build" / "wheels")
        self._build(base, folder, CHECKOUT / "Dockerfile", "ottla")

    def zookeeper(self, base: Path, folder: Path) -> None:
        run([CHECKOUT / "scripts" / "fetch-jars.sh", "zookeeper-image"], timeout_s=600)
        shutil.copytree(cache_directory() / JARS, folder / "jars")
        shutil.copy(SOURCES / "zookeeper" / "zkServer.sh", folder)
        smaller = ["--strip-debug", "--no-header-files", "--no-man-pages"]
        run(["jlink", "--add-modules", JAVA_MODULES, *smaller, "--output", folder / "java"], timeout_s=300)
        self._build(base, folder, SOURCES / "zookeeper" / "Dockerfile", "zookeeper")

    def pipeline(self, base: Path, folder: Path) -> None:
        run([CHECKOUT / "scripts" / "build-wheels.sh", "pipeline"], timeout_s=900)
        shutil.copytree(CHECKOUT / "build" / "wheels-pipeline", folder / "build" / "wheels-pipeline")
        reference = f"{self._base(base)}-java"
        if not self._is_built(reference):
            smaller = ["--strip-debug", "--no-header-files", "--no-man-pages"]
            run(["jlink", "--add-modules", SPARK_JAVA_MODULES, *smaller, "--output", folder / "java"], timeout_s=300)
            container = self._buildah("from", "--pull-never", self._base(base)).strip()
            self._buildah("add", "--quiet", container, str(folder / "java"), JAVA_DIR)
            path = f"/usr/local/bin:/usr/bin:/bin:{JAVA_DIR}/bin"
            self._buildah("config", "--env", f"PATH={path}", container)
            self._buildah("commit", "--quiet", "--rm", container, reference)
        self._build_on(reference, folder, CHECKOUT / "Dockerfile.pipeline", "pipeline")

    def client(self, base: Path, folder: Path) -> None:
        site = folder / "site"
        site.mkdir()
        for name in CLIENTS:
            for file in importlib.metadata.files(name) or []:
                if ".." in file.parts or "__pycache__" in file.parts:
                    continue
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(os.fspath(file.locate()), site / file)
        for program in PROGRAMS:
            shutil.copy(SOURCES / "client" / program, site)
        for module in load_modules():
            (site / module.parent.relative_to(CHECKOUT)).mkdir(parents=True, exist_ok=True)
            shutil.copy(module, site / module.relative_to(CHECKOUT))
        self._build(base, folder, SOURCES / "client" / "Dockerfile", "client")

    def _build(self, base: Path, folder: Path, dockerfile: Path, name: str) -> None:
        self._build_on(self._base(base), folder, dockerfile, name)

    def _base(self, base: Path) -> str:
        """The reference of the image of a base archive."""
        reference = f"localhost/base:{base.stem.removeprefix('base-')}"
        if not self._is_built(reference):
            self._import(reference, base, ["--env", "PIP_BREAK_SYSTEM_PACKAGES=1", "--cmd", '["python3"]'])
        return reference

    def _is_built(self, reference: str) -> bool:
        try:
            self._buildah("inspect", "--type", "image", reference)
        except CommandFailed:
            return False
        return True

    def _build_on(self, reference: str, folder: Path, dockerfile: Path, name: str) -> None:
        self._buildah(
            "build", "--isolation", "chroot", "--pull-never", "--layers", "--build-arg", f"BASE_IMAGE={reference}",
            "--file", str(dockerfile), "--tag", f"localhost/{name}:building", str(folder),
        )  # fmt: skip

    def _from_rootfs(self, image: Image, rootfs: Path) -> None:
        self._import(f"{image.name}:building", rootfs, ["--entrypoint", '["/pause"]'])

    def _import(self, reference: str, rootfs: Path, settings: Sequence[str]) -> None:
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "--quiet", container, str(rootfs), "/")
        self._buildah("config", *settings, container)
        self._buildah("commit", "--quiet", "--rm", container, reference)

    def _push(self, image: Image, archive: Path) -> None:
        building = f"{image.name}:building"
        self._buildah("push", "--quiet", building, f"docker-archive:{archive}:{image.reference}")
        self._buildah("rmi", building)

    def _buildah(self, *arguments: str) -> str:
        folders = ["--root", f"{self._cache}/buildah", "--runroot", f"{self._cache}/buildah.run"]
        return run(["buildah", *folders, "--storage-driver", "overlay", *arguments], timeout_s=600)


def _pause(folder: Path) -> None:
    run(["gcc", "-Os", "-static", "-s", "-o", folder / "pause", SOURCES / "pause" / "pause.c"])
    run(["tar", "-C", folder, "-cf", folder / "rootfs.tar", "pause"])
