"""The states of a local replica as values: events, rows, and what follows. Pure."""
