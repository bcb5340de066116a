"""The Kubernetes API as the operator uses it: names and labels, objects as mappings, conditions, Events.

Pure: no client and no clock. What a user writes is in `ottla_documents`, what follows from it in `concerns`.
"""
