"""The demo, without its load."""
