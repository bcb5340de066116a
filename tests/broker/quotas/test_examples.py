"""The examples in the docstrings of the quotas are true."""

import doctest
import importlib
import pkgutil

import pytest

import ottla_broker.quotas as package

MODULES = [name for _, name, _ in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_doctests_of_a_module_pass(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_measures_and_the_precedence_have_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {
        name.rpartition(".")[2]
        for name in MODULES
        if any(test.examples for test in finder.find(importlib.import_module(name)))
    }
    assert {"precedence", "sampled_rate", "token_bucket", "client_quotas", "alterations"} <= found
