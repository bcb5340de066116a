"""How the operator runs: watches fill a cache; one task for each cluster and one for its topics act on it.

    handlers          the only module that knows kopf: watch events and settings
    object_watch      topics, pipelines and namespaces, which are many: watched without kopf
    object_cache      the newest version of each object, from watches and from the answers to our own writes
    supervisor        the tasks, their back-off and the liveness probe
    cluster_task      snapshot -> decide -> write what differs -> at most one deletion -> status
    cluster_observer  reads the snapshot;  object_writer  writes objects;  event_writer  writes Events
    object_changes    changes an object that exists, for object_writer and pipeline_writer
    topic_task        batches of the KafkaTopics of one cluster;  topic_queue, topic_writer
    kafka_connection  the Kafka client of a cluster
    topic_audit       which topics others may have changed
    operator_metrics  what Prometheus sees;  http_endpoint  /metrics and the liveness probe
    lease             which operator may write
    release           before an uninstallation: no KafkaTopic waits for an operator that is gone
    operator          all of it put together

Everything runs in one event loop. A task never runs twice at a time, and `concerns` decide.
"""
