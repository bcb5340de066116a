"""Consumer groups of the consumer rebalance protocol (KIP-848): the coordinator assigns partitions, members reconcile.

Inside out: `group_image` (values), `states`, `assignors`, `reconciliation`, `topic_expressions`, `consumer_group` (the
state machine), `consumer_records` are pure. `groups.coordinator` puts timers, the log and metadata around them.
"""
