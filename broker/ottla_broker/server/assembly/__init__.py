"""The composition root: how the parts of a broker are made and connected."""
