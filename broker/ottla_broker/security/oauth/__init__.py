"""Access tokens of OAuth 2: what a broker takes of one, by which keys, and where a client gets one."""
