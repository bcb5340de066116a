"""The running broker: connections, dispatch, one handler module per API, registration, and the composition root."""
