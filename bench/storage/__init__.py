"""The storage benchmarks: many partitions, append and read beside plain files, recovery, growing logs.

Each scenario starts and fills its own systems, unlike the loads of `bench.scenarios`; `storage_table` lists them.
"""
