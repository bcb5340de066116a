"""The metadata of the cluster that the controller sends by UpdateMetadata."""
