"""What the commands say to a person: one line for what is wrong, with what and where, and what to do."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer


def complain(message: str) -> None:
    """Writes a line to standard error, red on a terminal."""
    from rich.console import Console

    Console(stderr=True).print(message, style="red", soft_wrap=True, markup=False, highlight=False)


def fail(message: str, exit_code: int = 1) -> NoReturn:
    """Ends the command with a line about what is wrong."""
    complain(message)
    raise typer.Exit(exit_code)


def confirm_deletion(question: str, yes: bool, unchanged: str) -> None:
    """Asks before records are lost, and ends the command when the answer is not yes.

    Without a terminal nobody can answer, and silence is no consent: then only --yes goes on.

    Args:
        yes: the option --yes.
        unchanged: what did not happen, such as "nothing is deleted".
    """
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"no confirmation, {unchanged}: run the command on a terminal, or pass --yes")
    from rich.prompt import Confirm

    if not Confirm.ask(question, default=False):
        raise typer.Exit(1)
