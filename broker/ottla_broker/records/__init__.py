"""Record batches as values and bytes: formats, checks, compression. Pure: no I/O, no clock."""
