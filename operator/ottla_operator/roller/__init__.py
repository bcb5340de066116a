"""Rolling restarts, one pod at a time, without losing a record: a pure state machine with its state in status.roll.

`machine` decides one step from facts; nothing here writes, reads a clock or awaits.
"""
