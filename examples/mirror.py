"""Copies topics to another cluster, each record once: python examples/mirror.py FROM TO PATTERN CHECKPOINT [--once]

Partitions, keys, values, headers and timestamps stay, and topics and partitions that come are followed. After each
batch the topic mirror-offsets of TO gets the offset behind the batch in both clusters, by which mirror_group.py moves a
consumer group. Without --once it runs until it is stopped; the next run goes on where this one has ended.
"""

import json
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession

import pyspark_ottla  # noqa: F401

OFFSETS = "mirror-offsets"
source, target, pattern, checkpoint = sys.argv[1:5]
spark = SparkSession.builder.appName("mirror").getOrCreate()
here, there = (AdminClient({"bootstrap.servers": servers}) for servers in (source, target))
producer = Producer({"bootstrap.servers": target, "acks": "all"})
ends_there = Consumer({"bootstrap.servers": target, "group.id": "mirror", "isolation.level": "read_uncommitted"})


def create(topics: set[str]) -> None:
    """Creates what the target lacks, with the partitions and the configuration of the source."""
    ours, theirs = here.list_topics().topics, there.list_topics().topics
    for topic in topics:
        wanted, found = len(ours[topic].partitions), len(theirs[topic].partitions) if topic in theirs else 0
        if found == 0:
            (settings,) = here.describe_configs([ConfigResource("topic", topic)]).values()
            own = ConfigSource.DYNAMIC_TOPIC_CONFIG
            config = {name: one.value for name, one in settings.result().items() if ConfigSource(one.source) is own}
            there.create_topics([NewTopic(topic, wanted, config=config)])[topic].result()
        elif found < wanted:
            there.create_partitions([NewPartitions(topic, wanted)])[topic].result()


def copy(rows: DataFrame, batch_id: int) -> None:
    rows = rows.persist()
    ends = rows.groupBy("topic", "partition").agg({"offset": "max"}).collect()
    create({topic for topic, _, _ in ends})
    query_id = json.loads(Path(checkpoint, "metadata").read_text())["id"]
    writer = rows.write.format("ottla").option("kafka.bootstrap.servers", target)
    writer.options(txnAppId=query_id, txnVersion=batch_id).mode("append").save()  # once, however often it is run
    rows.unpersist()
    for topic, number, last in ends:
        pair = {"here": last + 1, "there": ends_there.get_watermark_offsets(TopicPartition(topic, number))[1]}
        print(f"{topic}-{number}", pair)
        producer.produce(OFFSETS, key=f"{topic}-{number}", value=json.dumps(pair))
    if producer.flush(60):
        raise RuntimeError(f"{OFFSETS} cannot be written")


if OFFSETS not in there.list_topics().topics:
    there.create_topics([NewTopic(OFFSETS, 1, config={"retention.ms": "-1"})])[OFFSETS].result()
options = {"kafka.bootstrap.servers": source, "subscribePattern": pattern, "kafka.isolation.level": "read_committed"}
reader = spark.readStream.format("ottla").options(**options, startingOffsets="earliest", includeHeaders="true")
writer = reader.load().writeStream.foreachBatch(copy).option("checkpointLocation", checkpoint)
trigger = {"availableNow": True} if "--once" in sys.argv else {"processingTime": "1 second"}
writer.trigger(**trigger).start().awaitTermination()
