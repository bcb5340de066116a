"""Command line of the generator: `python -m ottla_broker.protocol.generator [--check]`."""

from __future__ import annotations

import argparse
import sys

from ottla_broker.protocol.generator import GENERATED, generate, read_definitions


def main() -> int:
    """Write the modules, or with `--check` say which are out of date."""
    parser = argparse.ArgumentParser(description="Write the modules of generated/ from definitions/.")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when something would change")
    check = parser.parse_args().check
    files = generate(read_definitions())
    GENERATED.mkdir(exist_ok=True)
    present = {path.name: path.read_text("utf-8") for path in sorted(GENERATED.glob("*.py"))}
    stale = sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))
    if check:
        for name in stale:
            print(f"generated/{name} is out of date: run python -m ottla_broker.protocol.generator")
        return 1 if stale else 0
    for name in stale:
        if name in files:
            (GENERATED / name).write_text(files[name], "utf-8")
        else:
            (GENERATED / name).unlink()
    print(f"{len(files)} modules, {len(stale)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
