"""The oracle checked: mutants applied into the broker, one at a time, must each be found within a few seeds.

Here the quick ones; `python -m simulation mutants` runs them all.
"""

from __future__ import annotations

import pytest

from simulation.mutants import MUTANTS, Mutant, find


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.is_quick], ids=lambda one: one.name)
@pytest.mark.long
def test_the_simulator_finds_a_quick_mutant(mutant: Mutant) -> None:
    found = find(mutant.name)
    assert found.seed is not None, f"not found in {mutant.seeds} seeds of {mutant.scenario}"


def test_a_mutant_is_gone_after_its_runs() -> None:
    before = [vars(target).get(name) for one in MUTANTS for target, name, _ in one.replaced]
    for one in MUTANTS:
        with one.applied():
            assert all(vars(target)[name] is instead for target, name, instead in one.replaced)
    assert [vars(target).get(name) for one in MUTANTS for target, name, _ in one.replaced] == before


def test_a_mutant_of_what_has_moved_is_an_error_and_not_a_mutant_that_nobody_finds() -> None:
    moved = Mutant("moved", "fleet", 1, ((Mutant, "no_such_name", None),))
    with pytest.raises(AttributeError, match="no_such_name"), moved.applied():
        pass


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)
