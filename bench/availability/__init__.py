"""The time without a leader for producers while one of three brokers is restarted or killed, beside Apache Kafka.

`producers` is the measuring client, the same for both systems; `outages` stops and kills; `outage_table` has the rows.
"""
