"""Other brokers: connections to them, the controller among them, and the requests that this broker sends."""
