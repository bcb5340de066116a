"""Server-side assignors (KIP-848): who gets which partition. Pure; the same input gives the same assignment.

`assignor` has their values, `uniform_assignor` and `range_assignor` the two that Apache Kafka has, `offered` the ones
of a broker (`group.consumer.assignors`).
"""
