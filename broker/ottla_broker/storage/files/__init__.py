"""The files of a log directory in the layout of Apache Kafka 3.9: names, formats, lookups and scans. No policy."""
