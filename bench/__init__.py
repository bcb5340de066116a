"""Compares Ottla with Apache Kafka 3.9.1: the same loads on both in one run, with ratios.

`make bench` or `python -m bench`. docs/internals/benchmarks.md describes the measurements and their pitfalls.
"""
