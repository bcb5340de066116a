"""The reasons why a known key has no effect, for the reference page."""

from __future__ import annotations

NOT_YET = "Without effect yet."
NO_SAMPLES = "Without effect: the rate applies to each piece of at most 1 MiB, so there are no samples."
ONE_LOOP = "Without effect: a broker is one event loop with one I/O lane per log directory, not pools of threads."
NO_KRAFT = "Without effect: KRaft is not built."
NO_TIERED_STORAGE = "Without effect: tiered storage is not built."
NO_SECURITY_YET = "Without effect yet: this part of security is not served."
NO_KINIT = "Without effect: a broker logs in with a keytab, and needs no kinit."
NO_JAVA_SOCKET = "Without effect: it names a Java class; zookeeper.ssl.client.enable alone decides."
NO_JMX = "Without effect: metrics are served over HTTP at ottla.http.listener."
KERNEL_SIZES = "Without effect: the kernel sets the receive buffers of connections between brokers."
NO_PURGE = "Without effect: a completed request leaves purgatory at once."
NO_NEWER_GROUPS = "Without effect: share groups are not built, and the group coordinator is not Apache Kafka's."
FORMAT_2_ALWAYS = "Without effect: format 2 is the only one stored since release 3.0."
OBSOLETE = "Without effect: Apache Kafka has removed what it configured."
LOGIN_RETRIES = "Without effect: a connection that gets no token is tried again as any other that fails."
