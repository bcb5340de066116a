"""Moves a consumer group without members to the mirror of mirror.py: python examples/mirror_group.py FROM TO GROUP

It goes on at the last pair of mirror-offsets that is not behind what it has committed: no record is left out, and those
of the batch that it was in come again.
"""

import sys

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql.functions import concat_ws
from table import read, show

source, target, group = sys.argv[1:4]
here, there = (AdminClient({"bootstrap.servers": servers}) for servers in (source, target))
found = here.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
committed = [(one.topic, one.partition, one.offset) for one in found[group].result().topic_partitions]
pairs = read(target, "mirror-offsets").selectExpr(
    "cast(key as string) of", "from_json(cast(value as string), 'here long, there long') pair"
)
rows = SparkSession.builder.getOrCreate().createDataFrame(committed, "topic string, partition int, here long")
name = concat_ws("-", rows.topic, rows.partition.cast("string"))
known = rows.join(pairs, (pairs.of == name) & (pairs.pair.here <= rows.here), "left")
moved = known.groupBy("topic", "partition", "here").agg({"pair.there": "max"}).na.fill(0).toDF(*rows.columns, "there")
offsets = [TopicPartition(row.topic, row.partition, row.there) for row in moved.collect()]
there.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result()
show(moved)
