"""The generated modules are what the generator writes today."""

from __future__ import annotations

from ottla_broker.protocol import generator


def test_the_committed_modules_are_up_to_date() -> None:
    wanted = generator.generate(generator.read_definitions())
    present = {path.name: path.read_text("utf-8") for path in sorted(generator.GENERATED.glob("*.py"))}
    assert sorted(wanted) == sorted(present)
    assert [name for name in sorted(wanted) if wanted[name] != present[name]] == []
