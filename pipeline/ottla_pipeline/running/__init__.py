"""Runs a KafkaPipeline document: Spark's options, its queries, and the folder with checkpoint and status."""
