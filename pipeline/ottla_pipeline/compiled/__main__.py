"""`python -m ottla_pipeline.compiled`: says whether records are decoded and encoded by compiled code, or why not."""

from ottla_pipeline.compiled.library import description

print(description())
