"""The vocabulary of the Kubernetes API as we use it: our group, labels and names, objects as mappings, conditions.

Pure: no client, no clock. What a user writes is in `model`; what follows from it in `planning`.
"""
