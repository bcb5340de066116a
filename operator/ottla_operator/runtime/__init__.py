"""How the operator runs: kopf's watches fill a store, one task per cluster and one per cluster's topics act on it.

store         what the watches and our own writes have shown, never older than what we wrote
cluster_task  wait -> snapshot -> decide -> write the differences -> at most one deletion -> status
topic_task    batches of KafkaTopics of one cluster
lease         who may write at all
release       what uninstalling does: no topic waits for an operator that is gone
operator      all of it put together
supervisor    which tasks there are, their back-off and their liveness
handlers      the only module that knows kopf
"""
