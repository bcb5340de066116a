"""Parts of handlers that several APIs share. A handler imports nothing of another handler, only these."""
