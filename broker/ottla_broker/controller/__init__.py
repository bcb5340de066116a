"""The controller: which broker leads which partition, and telling every broker so.

One broker of the fleet is the controller: the one whose ephemeral znode `/controller` exists. It watches brokers and
topics in the coordination store, decides, writes each decision under the fence of its controller epoch, and tells
the brokers, itself included, only by LeaderAndIsr, UpdateMetadata and StopReplica.

Pure parts: `assignment`, `elections`, `isr_changes`, `partition_states`, `replica_states`, `topic_rules`,
`topic_deletion`, `requests`, `values`; `context` is what the active controller knows. Parts that await the
Coordination port: `store`, `controller` and what it is made of. The brokers are reached through `channels_port`.
"""
