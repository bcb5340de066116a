"""KafkaPipelines. Pure."""
