"""The whole fleet in one process under virtual time, with injected faults.

The broker's own code runs here on simulated ports (`clock`, `network`, `disk`, `coordination`, `workers`) over an event
loop whose time is virtual (`loop`). One seed is one run: everything that varies is drawn from it, so the same seed
replays the same run in any process. `scenarios` holds what is run, `checker` what must hold afterwards, and
`python -m simulation` is the command behind `make simulate`.
"""
