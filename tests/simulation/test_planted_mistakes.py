"""The judge judged: mistakes planted into the broker, one at a time, must each be found within a few seeds.

Here the quick ones; `python -m simulation mistakes` runs them all.
"""

from __future__ import annotations

import pytest

from simulation.mistakes import MISTAKES, Mistake, find


@pytest.mark.parametrize("mistake", [one for one in MISTAKES if one.is_quick], ids=lambda one: one.name)
def test_a_quickly_found_mistake_is_found(mistake: Mistake) -> None:
    found = find(mistake.name)
    assert found.seed is not None, f"not found in {mistake.seeds} seeds of {mistake.scenario}"


def test_a_mistake_is_gone_when_it_has_been_judged() -> None:
    before = [vars(target).get(name) for one in MISTAKES for target, name, _ in one.replaced]
    for one in MISTAKES:
        with one.planted():
            assert all(vars(target)[name] is instead for target, name, instead in one.replaced)
    assert [vars(target).get(name) for one in MISTAKES for target, name, _ in one.replaced] == before


def test_every_mistake_has_a_name_of_its_own() -> None:
    assert len({one.name for one in MISTAKES}) == len(MISTAKES)
