"""Rolling one pod at a time without losing a record: a pure state machine whose state stands in status.roll.

`machine` decides one step from facts; nothing here writes, reads a clock or awaits.
"""
