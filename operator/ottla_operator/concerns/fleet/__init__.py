"""Which brokers there are: their ids, and those that leave. Pure."""
