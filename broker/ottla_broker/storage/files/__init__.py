"""The files of a log directory in Kafka 3.9's layout: names, formats, lookups and scans. No policy."""
