"""What a broker shares with its peers: other brokers, the active controller and the coordination store."""
