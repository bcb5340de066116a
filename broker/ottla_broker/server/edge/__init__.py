"""The edge to clients: listeners, connections, request scheduling, dispatch to handlers, and HTTP."""
