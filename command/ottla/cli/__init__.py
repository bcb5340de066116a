"""The `ottla` command. Each command group is imported on use, so that a broker starts quickly."""
