"""What a broker knows of the cluster, as the controller tells it by UpdateMetadata."""
