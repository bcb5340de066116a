"""The examples in the docstrings of every product."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCTS = (
    "broker/ottla_broker", "documents/ottla_documents", "pipeline/ottla_pipeline", "operator/ottla_operator",
    "command/ottla",
)  # fmt: skip
NEED_SPARK = ("ottla_pipeline.running.runner", "ottla_pipeline.running.spark_errors")
MODULES = sorted(
    ".".join(path.relative_to(ROOT / product.split("/")[0]).with_suffix("").parts)
    for product in PRODUCTS
    for path in (ROOT / product).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spark] if name in NEED_SPARK else []) for name in MODULES]
)
def test_the_examples_of_a_module_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert (found.failed, found.attempted > 0) == (0, True)


def test_there_are_examples_of_every_product() -> None:
    assert {name.split(".")[0] for name in MODULES} == {product.split("/")[1] for product in PRODUCTS}
