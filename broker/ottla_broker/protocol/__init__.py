"""The wire protocol: definitions, generated readers and writers, error codes, framing. Pure, no I/O."""
