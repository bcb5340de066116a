"""Batch reads in odd circumstances: what changes between two queries of a DataFrame, and what SQL adds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster
from ottla_pipeline.reading.java_patterns import PatternError, compile_java
from tests.pipeline.fleets import admin_of, create, delete, produce, until, wait_for_partitions

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3) as found:
        yield found


def frame(spark: Any, fleet: RunningCluster, connector: str = "ottla", **options: str) -> Any:
    reader = spark.read.format(connector).option("kafka.bootstrap.servers", fleet.bootstrap)
    return reader.options(**options).load()


@pytest.mark.long
def test_a_query_after_new_records_has_them_as_with_the_stock_connector(spark: Any, fleet: RunningCluster) -> None:
    create(fleet, "grows")
    produce(fleet, "grows", {0: 100})
    both = [frame(spark, fleet, connector, subscribe="grows") for connector in ("ottla", "kafka")]
    both[0].createOrReplaceTempView("grows_view")
    assert [rows.count() for rows in both] == [100, 100]
    produce(fleet, "grows", {0: 10, 1: 10})
    assert [rows.count() for rows in both] == [120, 120]
    assert spark.sql("select count(*) from grows_view").first()[0] == 120
    admin = admin_of(fleet)
    admin.create_partitions([NewPartitions("grows", 3)])["grows"].result(60)
    wait_for_partitions(fleet, "grows", 3)
    produce(fleet, "grows", {2: 7})
    assert [rows.count() for rows in both] == [127, 127]
    assert spark.sql("select count(*) from grows_view where partition = 2").first()[0] == 7


def test_topics_that_come_under_a_pattern_are_read_by_the_next_query(spark: Any, fleet: RunningCluster) -> None:
    rows = frame(spark, fleet, subscribePattern="^later_[a-z&&[^x]]$")
    assert rows.count() == 0
    for topic, count in (("later_a", 3), ("later_x", 100), ("later_b", 4)):
        create(fleet, topic, 1)
        produce(fleet, topic, {0: count})
    assert rows.count() == 7


def test_a_view_answers_the_same_with_filters_pushed_down(spark: Any, fleet: RunningCluster) -> None:
    create(fleet, "pushed")
    produce(fleet, "pushed", {0: 100})
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame(spark, fleet, subscribe="pushed").createOrReplaceTempView("pushed_view")
        queries = ("select count(*) from pushed_view", "select count(*) from pushed_view where partition >= 0")
        assert [spark.sql(query).first()[0] for query in queries] == [100, 100]
        produce(fleet, "pushed", {1: 20})
        assert [spark.sql(query).first()[0] for query in queries] == [120, 120]
        assert spark.sql("select count(*) from pushed_view where partition = 1").first()[0] == 20
        assert [spark.sql(query).first()[0] for query in queries] == [120, 120]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_read_right_after_the_death_of_a_leader_waits_for_the_next_one(spark: Any, fleet: RunningCluster) -> None:
    create(fleet, "bereft", 6, 3)
    produce(fleet, "bereft", dict.fromkeys(range(6), 50))
    admin = admin_of(fleet)

    def partitions() -> list[Any]:
        return list(admin.list_topics("bereft", timeout=60).topics["bereft"].partitions.values())

    until(lambda: all(len(entry.isrs) == 3 for entry in partitions()), "all replicas are in sync")
    leader = partitions()[0].leader
    rows = frame(spark, fleet, subscribe="bereft")
    fleet.kill(leader)
    try:
        assert rows.count() == 300
    finally:
        fleet.start(leader)


def test_a_topic_created_again_under_a_planned_read_is_data_loss(spark: Any, fleet: RunningCluster) -> None:
    create(fleet, "again", 1)
    produce(fleet, "again", {0: 20})
    rows, lenient = (
        frame(spark, fleet, subscribe="again", failOnDataLoss=flag, endingOffsets='{"again": {"0": 20}}')
        for flag in ("true", "false")
    )
    late = frame(spark, fleet, subscribe="again")
    assert [found.count() for found in (rows, lenient, late)] == [20, 20, 20]
    delete(fleet, "again")
    create(fleet, "again", 1)
    produce(fleet, "again", {0: 30})
    for found in (rows, late):
        with pytest.raises(Exception, match="DataLoss: again-0: topic 'again' was deleted and created again since"):
            found.count()
    assert lenient.count() == 20


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_end_behind_the_log_is_said_at_once_or_cut(spark: Any, fleet: RunningCluster, fail: str) -> None:
    topic = f"behind-{fail}"
    create(fleet, topic, 1)
    produce(fleet, topic, {0: 5})
    rows = frame(spark, fleet, subscribe=topic, endingOffsets=f'{{"{topic}": {{"0": 9}}}}', failOnDataLoss=fail)
    if fail == "true":
        with pytest.raises(Exception, match="option endingOffsets: 9 for behind-true-0 lies behind the end of its log"):
            rows.count()
    else:
        assert rows.count() == 5


def test_there_are_as_many_tasks_as_with_the_stock_connector(spark: Any, fleet: RunningCluster) -> None:
    create(fleet, "skewed", 20)
    produce(fleet, "skewed", {0: 2000, 1: 700, 2: 33, **dict.fromkeys(range(3, 20), 10)})
    ends = json.dumps({"skewed": {"0": 2000, **{str(number): -1 for number in range(1, 20)}}})
    for options in (
        *({"minPartitions": str(number)} for number in (1, 20, 22, 30, 50)),
        {"maxRecordsPerPartition": "300"},
        {"maxRecordsPerPartition": "300", "endingOffsets": ends},
        {"maxRecordsPerPartition": "300", "minPartitions": "40"},
        {"minPartitions": "25", "endingOffsets": ends},
    ):
        ours, theirs = (
            frame(spark, fleet, connector, subscribe="skewed", **options).rdd.getNumPartitions()
            for connector in ("ottla", "kafka")
        )
        assert ours == theirs, options


def test_views_of_sql_read_topics_and_tables_are_refused(spark: Any, fleet: RunningCluster) -> None:
    create(fleet, "tabled", 1)
    produce(fleet, "tabled", {0: 5})
    options = f"OPTIONS ('kafka.bootstrap.servers' '{fleet.bootstrap}', 'subscribe' 'tabled')"
    spark.sql(f"CREATE TEMPORARY VIEW tabled_view USING ottla {options}")
    assert spark.sql("select count(*) from tabled_view").first()[0] == 5
    produce(fleet, "tabled", {0: 5})
    assert spark.sql("select count(*) from tabled_view").first()[0] == 10
    with pytest.raises(Exception, match="option provider: Spark reads a table of its catalogue without the options"):
        spark.sql(f"CREATE TABLE tabled_table USING ottla {options}")
    with pytest.raises(Exception, match=r"option path: is of no use here: write load\(\) without a path"):
        spark.read.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap).load("tabled").count()


PATTERNS = (
    "c_[a-z&&[^gsl]]+", r"\p{Alpha}+\z", r"(?i)C_", r"a(?i)b|C", r"\QA.b\E", r"[\p{L}&&[^\p{Lu}]]{3}", r"^\W",
    r"[^\w.]",
    r"(?i)[^a-c]{4}", r"(a|b)\1", r"[a-c[x-z]]+$", r"(?i:[A-C&&[^b]])\d", r"\x61\u0062", r"x*+x", r"(?>a|ab)c",
    r"[]a]",
    r"[a\Q-\Ez]{2}", r"(?<n>\d)-\k<n>", r"\p{javaLowerCase}\P{Digit}", r"^.{3}$", r"[+--]", r"\bb\B", "(?-i)B",
    r"[a-z&&[b-d]&&[^c]]", r"(?is)\p{Lower}_", "a{2}", r"[\d&&[^5]]", r"\h|\v", r"^(?!a).*(?<=b)$",
)  # fmt: skip
TOPICS = (
    "c_abc",
    "C_abc",
    "cgsl",
    "A.b",
    "a.b",
    "aa",
    "abc",
    "xxx",
    "5-5",
    "5-6",
    "-",
    "_a",
    "B",
    "b",
    "",
    "zyx9",
    "bcd",
)


def test_patterns_match_as_in_java(spark: Any) -> None:
    java = spark._jvm.java.util.regex.Pattern
    for pattern in PATTERNS:
        expected = [topic for topic in TOPICS if java.compile(pattern).matcher(topic).find()]
        try:
            ours = compile_java(pattern)
        except PatternError as error:
            pytest.fail(f"{pattern}: {error}")
        assert [topic for topic in TOPICS if ours.search(topic)] == expected, pattern
