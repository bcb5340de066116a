"""One module per API. Its docstring says Behaviour, Errors (in the order of checking) and Versions (with the KIP).

`server/edge/dispatch.py` lists which module serves which API, and in which versions.
"""
