"""The fetch engine: what a Fetch request reads, how long it waits, and incremental fetch sessions (KIP-227)."""
