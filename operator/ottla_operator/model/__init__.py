"""The documents that a user writes, KafkaCluster and KafkaTopic, as values, with all defaults and rules.

The operator and `ottla local` read the same documents with this package. So it imports neither kopf nor kubernetes, and
of the broker only its configuration keys. Defaults are here and not in the CRD schemas.
"""
