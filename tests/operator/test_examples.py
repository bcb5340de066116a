"""The examples in the operator's docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import ottla_operator

MODULES = sorted(module.name for module in pkgutil.walk_packages(ottla_operator.__path__, "ottla_operator."))


@pytest.mark.parametrize("name", MODULES)
def test_the_doctests_of_a_module_pass(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(examples) > 10
