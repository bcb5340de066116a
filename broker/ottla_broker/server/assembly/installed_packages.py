"""The parts of a broker that an installed Python package may bring, by the name of an entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from ottla_broker.server.lifecycle import StartRefused


def entry_point(key: str, name: str, group: str, built_in: str) -> EntryPoint:
    """The entry point that the value of a configuration key names.

    Args:
        key: the configuration key.
        name: its value.
        group: of the entry points.
        built_in: the value that needs no package.

    Raises:
        StartRefused: no package has it.
    """
    installed = entry_points(group=group)
    found = next((one for one in installed if one.name == name), None)
    if found is None:
        names = ", ".join(sorted(installed.names)) or "none is installed"
        raise StartRefused(
            f"{key}: {name} is neither {built_in} nor an installed entry point of the group {group} ({names})"
        )
    return found
