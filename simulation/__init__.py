"""The whole fleet in one process under virtual time, with injected faults.

The broker's own code runs on simulated ports (`clock`, `network`, `disk`, `coordination`, `workers`) and an event loop
with virtual time (`loop`). One seed is one run: every random value comes from it, so the same seed replays the same run
in any process. `scenarios` has the runs, `checker` and `oracle` the guarantees. `make simulate` calls
`python -m simulation`.
"""
