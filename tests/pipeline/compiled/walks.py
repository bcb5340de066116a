"""The walks over records that there are here: numpy's, and the compiled one where `make setup` has found a compiler."""

from __future__ import annotations

from ottla_pipeline.compiled import build
from ottla_pipeline.compiled.library import Functions, NotCompiled, load
from ottla_pipeline.reading import compiled_walk, numpy_walk
from ottla_pipeline.reading.decoded import Decode


def compiled_functions() -> Functions | None:
    """The compiled functions of this checkout, whatever OTTLA_COMPILED says; None where they are not built."""
    try:
        return load(build.LIBRARY)
    except NotCompiled:
        return None


FUNCTIONS = compiled_functions()
WAYS: tuple[Functions | None, ...] = (None, FUNCTIONS) if FUNCTIONS is not None else (None,)
"""None stands for numpy."""
WALKS: tuple[Decode, ...] = (
    (numpy_walk.decode,) if FUNCTIONS is None else (numpy_walk.decode, compiled_walk.decoder(FUNCTIONS))
)
