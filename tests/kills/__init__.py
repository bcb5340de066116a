"""kill -9 at random points under load: `python -m tests.kills --runs 500`; twenty of them are a test.

A real broker process on one data directory is killed and started again, over and over, while producers with acks=all
write to it. After every kill the files must agree with each other; after every start nothing acknowledged or read may
be lost or changed, and nothing of the idempotent producers may be there twice. `broker.py` is the process, `load.py`
the producers and what they were told, `runs.py` the kills and the checks.
"""
