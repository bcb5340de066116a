"""How long producers are without a leader while a broker of three is restarted or killed, beside Apache Kafka.

`producers` is the measuring client, the same for both systems; `outages` stops and kills; `table` has the rows.
"""
