"""A fleet of two kinds: brokers of Apache Kafka 3.9.1 and ours in one ZooKeeper, under load, each in every role.

`python -m tests.mixed` runs the whole campaign (about ten minutes on two cores), `test_mixed.py` a short one. `fleet`
are the brokers, `campaign` what is done to them; load, history and checker are those of `tests.nemesis`.
"""
