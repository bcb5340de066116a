"""Parts of handlers that several APIs share. A handler imports no other handler, only these."""
