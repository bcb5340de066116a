"""The ports to the outside, and their production adapters.

`ports` has the interfaces. `kubernetes_api`, `kafka_admin` (with `topic_requests`) and `environment` are the adapters.
"""
