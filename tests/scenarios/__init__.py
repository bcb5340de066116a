"""What a fleet of real processes goes through: crashes, dead disks, moves and cleanings, and nothing is lost.

No test of one module: each crosses the broker, its files, the coordination store and a client. The processes, file
systems and brokers of Apache Kafka are those of `tests.integration`; `load.py` has the producer and the consumer.
"""
