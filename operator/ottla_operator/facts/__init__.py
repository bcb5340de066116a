"""What any concern may ask: the snapshot, claims, nodes, differences, maintenance, progress. Pure."""
