"""A model of what happens around the operator, for hypothesis: rules that change things, and what must hold."""
