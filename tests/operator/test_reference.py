"""The reference pages of the manual are what the command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_operator.reference import main

ROOT = Path(__file__).parents[2]
DEFINITIONS = [str(path) for path in sorted((ROOT / "crds").glob("*.yaml"))]


@pytest.mark.parametrize(
    ("page", "arguments"),
    [("crd-fields.md", ["fields", *DEFINITIONS]), ("condition-reasons.md", ["reasons"])],
)
def test_a_reference_page_is_what_the_command_prints(
    page: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    command = (
        f"python -m ottla_operator.reference {arguments[0]}{' crds/*.yaml' if DEFINITIONS[0] in arguments else ''}"
    )
    written = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert written == capsys.readouterr().out, f"{command} > docs/reference/{page}"


@pytest.mark.parametrize("arguments", [[], ["fields"], ["reasons", "more"], ["metrics"]])
def test_the_command_prints_its_usage_when_it_is_asked_for_no_page_it_has(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "usage:" in capsys.readouterr().err


def test_the_fields_that_the_operator_needs_are_those_of_the_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["needed", *DEFINITIONS]) == 0
    written = (ROOT / "operator" / "ottla_operator" / "api" / "needed_fields.py").read_text(encoding="utf-8")
    assert written == capsys.readouterr().out, "make reference"
