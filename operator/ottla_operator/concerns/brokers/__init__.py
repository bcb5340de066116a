"""StatefulSets, Services and budgets of brokers, and nodes that are drained. Pure."""
