"""Writes a thousand records into the topic `flights` and reads them: python examples/first_records.py HOST:PORT"""

import sys

from confluent_kafka import Consumer, Producer

producer = Producer({"bootstrap.servers": sys.argv[1]})
for number in range(1000):
    producer.produce("flights", f"record {number}")
producer.flush()

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "first", "auto.offset.reset": "earliest"})
consumer.subscribe(["flights"])
messages = consumer.consume(1000, timeout=30)
print(sum(message.error() is None for message in messages), "records")
consumer.close()  # commits the offsets and leaves the group: the next run reads at once, and only what is new
