"""Record batches and the older message sets: headers, checksums, compression, records, control records. No I/O.

Start with `batch` (the header of a batch of format 2, which is all that a log usually reads) and `record` (the records
inside). `formats` reads batches of any message format, `legacy` formats 0 and 1. `ids` names partitions.
"""
