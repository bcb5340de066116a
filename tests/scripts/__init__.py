"""The scripts that make lint and the documentation call."""
