"""Builders of pods and their templates, and the status of objects. Pure."""
