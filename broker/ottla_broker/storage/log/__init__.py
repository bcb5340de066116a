"""One replica's log: appends, reads, truncation, retention, producer state, recovery."""
