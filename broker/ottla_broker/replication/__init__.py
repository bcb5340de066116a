"""Replication: what a broker does with a partition as its leader or as a follower.

`isr` and `divergence` are the rules, pure; `delayed` keeps requests that wait; `partition` is one replica on this
broker; `local_replicas.replica_manager` holds them all; `fetcher` follows other leaders; `alter_partition` asks the
controller for ISR changes. Wire formats of client requests stand in `ottla_broker.server.handlers`, files in
`ottla_broker.storage`.

What others may rely on:

- The hot path reads `replica_manager.topics`; only the replica manager writes it. The state of each replica on this
  broker is one value, `LocalReplica`, and changes only through the table in `replication.replica_states.states`.
  Storage reports through `on_logs_offline` and `on_catch_up`.
- LeaderAndIsr and StopReplica are carried out one after the other. `on_metadata_changed` follows every
  UpdateMetadata. `stop` checkpoints the high watermarks and runs before the last flush.
- Requests that wait stand in the queues of their partition and on the timer wheel, and are completed exactly once.
- Fetch (`replication.fetch`, docs/internals/fetching.md): every fetch goes through the engine; the handler translates
  versions and encodes. Between fetches each partition of a session stays among the waiters of the partition. So
  whatever changes the result of a fetch of a partition calls `wake_delayed_fetches`; what does not is noticed within
  two seconds.
- Fetchers: a follower that is not `is_ready` is left out of the request, and removed from the leader's session.
- A replica that is STOPPED (`replica_states`) neither leads nor follows: StopReplica without deletion, or a broker
  that stops.
- A broker client never reconnects by itself; its failures are `BrokerDisconnected`, a ConnectionError.
- The metadata cache changes only by UpdateMetadata.
"""
