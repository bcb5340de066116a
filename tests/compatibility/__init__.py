"""Which client can do what with a fleet of ours: `python -m tests.compatibility`.

Every client is a program in its own language that does what a user would do (`programs/`). It reads one JSON object
per line and answers with one (`protocol.py`). Every scenario (`scenarios.py`) is run with every client; the outcome
is a cell of docs/reference/compatibility.md: it passes, or says why not.
"""
