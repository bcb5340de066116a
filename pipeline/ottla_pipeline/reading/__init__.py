"""The Spark source: from `options` to a `plan` of ranges, whose records `fetch` reads and `columns` lays out."""
