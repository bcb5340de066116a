"""Client metrics (KIP-714): which clients push what, and the series that a broker exposes of it."""
