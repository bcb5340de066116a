"""The fetch engine: what a Fetch request reads, how long it waits, and incremental fetch sessions (KIP-227).

    engine              the entry: chooses the context of a request and starts it
    fetch_values        what goes in (FetchParams, the requested partitions) and what comes out (FetchResult)
    contexts            which partitions a request is about: sessionless, full, incremental (Kafka's FetchContext)
    session_fetch_state what one session's client has received, and which of its partitions may have news
    session_cache       session ids, epochs and eviction
    delayed_fetch       one request from its arrival to its result; waits in purgatory in between
    long_fetch          the same for a request of many partitions, in turns with other requests
    checks              whether a partition can be read, and whether the request is satisfied
    partition_reads     one pass over the partitions, which goes on in callbacks where the disk is slow
    down_conversion     message formats 0 and 1 for consumers of before 0.11

Not here: versions of the Fetch API, its envelope and leader hints (`server.handlers.fetch`), the follower's side of a
session (`replication.leader_session`), offsets and the in-sync set (`replication.partition`).

Concurrency: everything happens on the broker's loop. Reads that the disk answers later, conversions and turns suspend a
fetch; `partition_reads` and `long_fetch` say what may have changed when it goes on.

Values, with one exception that is made for speed: the results of partitions and topics are objects of the generated
classes `PartitionData` and `FetchableTopicResponse` of `protocol.generated.fetch`, which the handler sends as they are,
and a requested partition is whatever has the attributes of `fetch_values.RequestedPartition`: neither the decoded
request nor the response is copied.
"""
