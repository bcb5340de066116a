"""Record batches of message format 2: headers, checksums, compression, records, control records. No I/O.

Start with `batch` (what a log sees of a batch) and `record` (what is inside). `ids` names partitions.
"""
