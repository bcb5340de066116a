"""Compiles the C code of ottla_pipeline when a wheel is built, or this checkout is installed (`make setup`).

Without a C compiler, or with OTTLA_COMPILED=off, the package is made without it: then numpy does the work, and the
wheel is for every machine.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "pipeline/ottla_pipeline/compiled"


class CompiledCode(BuildHookInterface[Any]):
    """What hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is made; `version` is "editable" for one that only points to this checkout."""
        if self.target_name != "wheel":
            return
        build = _build_module(Path(self.root))
        is_off = os.environ.get(build.SWITCH, "").lower() == "off"
        problem = f"{build.SWITCH} is off" if is_off else build.compile_library()
        if problem is not None:
            self.app.display_warning(f"without compiled code: {problem}")
            return
        if version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["artifacts"].append(f"{_PACKAGE}/{build.LIBRARY.name}")


def _build_module(root: Path) -> ModuleType:
    """`ottla_pipeline.compiled.build`, whose package is not installed yet."""
    specification = importlib.util.spec_from_file_location("ottla_compiled_build", root / _PACKAGE / "build.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
