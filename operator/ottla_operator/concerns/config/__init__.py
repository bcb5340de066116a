"""server.properties of each broker, and what changes while it runs. Pure."""
