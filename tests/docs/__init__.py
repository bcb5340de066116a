"""The manual: its links, its generated pages, the code that it names."""
