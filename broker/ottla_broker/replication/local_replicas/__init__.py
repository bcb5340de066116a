"""The replicas on this broker: their states, and the controller's commands about them."""
