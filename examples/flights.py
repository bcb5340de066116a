"""Arrival delays by hour and carrier, from the topic `flights`: python examples/flights.py HOST:PORT [PICTURE.png]"""

import sys

import matplotlib.pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, from_json

import pyspark_ottla  # noqa: F401

spark = SparkSession.builder.appName("flights").getOrCreate()
rows = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "flights").load()
flights = rows.select(from_json(col("value").cast("string"), "hour int, carrier string, arr_delay double").alias("f"))
delays = flights.where("f.arr_delay is not null").groupBy("f.hour", "f.carrier").agg(avg("f.arr_delay")).collect()
means = {(hour, carrier): mean for hour, carrier, mean in delays}
hours, carriers = (sorted(set(names)) for names in zip(*means, strict=True))
grid = [[means.get((hour, carrier), float("nan")) for carrier in carriers] for hour in hours]
print("hour", *(f"{carrier:>4}" for carrier in carriers))
for hour, line in zip(hours, grid, strict=True):
    print(f"{hour:4}", *("   ·" if mean != mean else f"{round(mean):4}" for mean in line))
figure, axes = plt.subplots(figsize=(9, 7), layout="constrained")
figure.colorbar(axes.imshow(grid, cmap="RdYlGn_r", vmin=-40, vmax=40, aspect="auto"), label="minutes late on average")
axes.set(xticks=range(len(carriers)), xticklabels=carriers, yticks=range(len(hours)), yticklabels=hours, ylabel="hour")
figure.savefig(sys.argv[2] if len(sys.argv) > 2 else "flights.png", dpi=120)
