"""Long campaigns of the operator's model: `python -m tests.operator.model_based --examples 20000`.

Prints the smallest sequence of rules that fails, and ends with status 1.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Annotated

import typer
from hypothesis import Phase, seed
from hypothesis.stateful import run_state_machine_as_test

from tests.operator.model_based.machines import MACHINES, settings_of


def main(
    examples: Annotated[int, typer.Option(help="Sequences of rules for each machine.")] = 2000,
    steps: Annotated[int, typer.Option(help="Rules in a sequence, at most.")] = 30,
    machine: Annotated[str, typer.Option(help=f"One of {', '.join(MACHINES)}; all of them without it.")] = "",
    first_seed: Annotated[int, typer.Option("--seed", help="0 takes a new one.")] = 0,
    shrink: Annotated[bool, typer.Option(help="Look for the smallest sequence that fails.")] = True,
) -> None:
    """Runs the machines of the operator's model."""
    logging.disable(logging.CRITICAL)
    number = first_seed or time.time_ns() % 2**31
    phases = (Phase.explicit, Phase.generate, *((Phase.shrink,) if shrink else ()))
    for name, found in MACHINES.items():
        if machine and machine != name:
            continue
        began = time.monotonic()
        print(f"{name}: {examples} examples, --seed {number}", flush=True)
        chosen = settings_of(examples, steps, phases=phases)
        try:
            run_state_machine_as_test(seed(number)(found), settings=chosen)
        except Exception as error:
            notes = [note for note in getattr(error, "__notes__", ()) if "nothing_forbidden_was_done" not in note]
            print("\n".join([f"{name}: {type(error).__name__}: {error}", *notes]), flush=True)
            raise typer.Exit(1) from None
        print(f"{name}: {examples} examples in {time.monotonic() - began:.0f} s, nothing found", flush=True)


if __name__ == "__main__":
    sys.exit(typer.run(main))
