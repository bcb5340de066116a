"""Rolling restarts without losing a record: a pure state machine with its state in status.roll.

`machine` decides one step from facts; `rolls` finds the facts in a snapshot. Nothing here writes, reads a clock or
awaits.
"""
