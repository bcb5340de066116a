"""SASL: its mechanisms on both sides, and the lines of configuration that name users. Pure."""
