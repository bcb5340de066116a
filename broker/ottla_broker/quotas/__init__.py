"""Client quotas: bounds by user, client id and address, rates, and for how long a client is throttled. Pure.

Lives here: what a quota is (`entities`, `alterations`, `filters`), which one holds for a client (`precedence`), how a
rate is measured (`sampled_rate`, `token_bucket`) and what follows from it (`client_quotas`, `mutation_quotas`). Time
comes with each call. Not here: znodes (`coordination.quota_znodes`), connections and responses (`server.edge`), the
quotas of replication (`replication.quotas`).

Source: KIP-13, KIP-55, KIP-124, KIP-219, KIP-546, KIP-599, KIP-612.
"""
