"""The documents that a user writes, KafkaCluster, KafkaTopic and KafkaPipeline, as values, with all defaults and rules.

The operator, `ottla local` and `ottla pipeline` read the same documents with this package. So it imports neither kopf,
kubernetes nor pyspark, and of the broker only its configuration keys. Defaults are here and not in the CRD schemas.
"""
