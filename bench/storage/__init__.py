"""The storage half of the benchmark: many partitions, append and read beside plain files, recovery, growing logs.

Each scenario starts and fills its own systems, unlike the loads of `bench.scenarios`; `table` names them all.
"""
