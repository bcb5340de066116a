"""What the group coordinator and the transaction coordinator share: state kept in a compacted internal topic.

Both hash a name to a partition of their topic (`partitioning`), and whoever leads the partition coordinates the name
(`owned_partitions`). Both append records to that partition and rebuild their state from it (`topic_log`).
"""
