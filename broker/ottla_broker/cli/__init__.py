"""The `ottla` command. Each group of commands is imported when it is used, so that a broker starts quickly."""
