"""Everything the operator does to the outside, behind ports: the Kubernetes API, Kafka, the brokers' /status.

`ports` are the interfaces; `kubernetes_api`, `kafka_admin` and `environment` the adapters of production.
"""
