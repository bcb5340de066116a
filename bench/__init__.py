"""Side by side with Apache Kafka 3.9.1: the same loads on its broker and on ours, in one run, with ratios.

`make bench` or `python -m bench`. What is measured and how not to fool oneself stands in docs/internals/benchmarks.md.
"""
