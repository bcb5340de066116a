"""The documents a user writes: KafkaCluster and KafkaTopic as values, with every default and every rule.

The Kubernetes operator and `ottla local` read the same documents through this package, so it imports neither kopf nor
kubernetes, and nothing of the broker but its configuration keys. Defaults live here and not in the CRD schemas.
"""
