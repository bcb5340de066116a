"""The replicas of this broker: carries out what follows from their states (`replica_states`)."""
