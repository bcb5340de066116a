"""When replicas move, and where a move stands. Pure; where to is `rebalancer`."""
