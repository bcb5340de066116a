"""The group and version of the custom resources."""

GROUP = "kafka.ottla.dev"
VERSION = "v1alpha1"
