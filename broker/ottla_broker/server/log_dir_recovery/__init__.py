"""What comes back after a loss: replicas of a new or emptied log directory, directories that failed, power failures."""
