"""Record batches decoded and encoded by compiled C code, where there is any: see `library`.

`decoding.c` and `encoding.c` are a faster way to do what `reading.numpy_walk` and `sink.record_encoding` do with numpy,
with the same results. `build` compiles them. `python -m ottla_pipeline.compiled` says which way is taken.
"""
