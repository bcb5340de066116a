"""What a person does with Ottla on Kubernetes, in the order of a cluster's life. `make e2e` runs it."""
