"""The Kubernetes operator of Ottla; so far the documents a user writes (`model`)."""
