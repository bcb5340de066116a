"""spec.brokers.pools, read the way a user would write it right and wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_documents.broker_pools import BrokerPool, IdRange, free_ids, missing, pools_of, surplus
from ottla_documents.kafka_cluster import BrokersSpec, default_broker_config, parse_cluster
from ottla_documents.resources import Resources

D0 = {"name": "d0", "size": "1Gi"}


def _brokers(**brokers: Any) -> tuple[BrokersSpec, list[str]]:
    cluster, problems = parse_cluster({"metadata": {"name": "c"}, "spec": {"brokers": brokers}})
    return cluster.brokers, [str(problem) for problem in problems]


def _pool(name: str, replicas: int = 1, first: int = -1, last: int = -1) -> BrokerPool:
    id_range = IdRange(first, last) if first >= 0 else None
    return BrokerPool(name, replicas, (), {}, Resources({}, {}), id_range=id_range)


def test_without_pools_all_brokers_are_of_the_pool_main() -> None:
    brokers, problems = _brokers(replicas=5, disks=[D0], racks=["a"], config={"num.io.threads": 4})
    (main,) = brokers.pools
    assert problems == [] and not brokers.has_pools
    assert (main.name, main.replicas, main.racks, main.config) == ("main", 5, ("a",), {"num.io.threads": "4"})
    assert main.path_of("disks") == "spec.brokers.disks" and main.path_of("racks") == "spec.brokers.racks"


@pytest.mark.parametrize(
    "key",
    [
        "ssl.key.password",
        "ssl.keystore.key",
        "sasl.jaas.config",
        "delegation.token.secret.key",
        "zookeeper.ssl.keystore.password",
        "ottla.zookeeper.sasl.jaas.config",
        "listener.name.client.ssl.keystore.password",
        "listener.name.client.sasl.jaas.config",
        "listener.name.internal.scram-sha-512.sasl.jaas.config",
    ],
)
def test_a_secret_is_refused_in_every_config_with_the_field_that_will_take_it(key: str) -> None:
    """It would go into server.properties in a ConfigMap."""
    config = {key: "org.example.LoginModule required password=hunter2;", "num.io.threads": 4}
    brokers, problems = _brokers(disks=[D0], config=config, pools=[{"name": "fast", "replicas": 1, "config": config}])
    reason = "is a secret, and this field is stored in a ConfigMap; it will be taken from a Secret that"
    assert [problem for problem in problems if key in problem] == [
        f"{path}.config.{key}: {reason} {path}.configSecrets names, a field that this release does not have"
        for path in ("spec.brokers", "spec.brokers.pools[0]")
    ]
    assert "hunter2" not in "".join(problems)
    assert all(pool.config == {"num.io.threads": "4"} for pool in brokers.pools)


def test_a_pool_has_from_the_brokers_what_it_does_not_say() -> None:
    brokers, problems = _brokers(
        disks=[D0], racks=["a"], config={"num.io.threads": 4, "min.insync.replicas": 2},
        resources={"requests": {"cpu": "1"}},
        template={"pod": {"metadata": {"labels": {"team": "x"}}}, "service": {"metadata": {"labels": {"team": "x"}}}},
        pools=[
            {"name": "fast", "replicas": 2},
            {
                "name": "big", "replicas": 1, "racks": ["b"], "config": {"num.io.threads": 9}, "resources": {},
                "disks": [D0, {"name": "d1", "size": "2Gi"}], "template": {"pod": {"metadata": {"labels": {"y": "z"}}}},
            },
        ],
    )  # fmt: skip
    fast, big = brokers.pools
    assert problems == [] and brokers.replicas == 3
    assert (fast.racks, fast.resources.requests, [disk.name for disk in fast.disks]) == (("a",), {"cpu": "1"}, ["d0"])
    assert fast.config == {"num.io.threads": "4", "min.insync.replicas": "2"} == brokers.config
    assert big.config == {"num.io.threads": "9", "min.insync.replicas": "2"}
    assert (big.racks, big.resources.requests, [disk.name for disk in big.disks]) == (("b",), {}, ["d0", "d1"])
    assert fast.template.pod.metadata.labels == {"team": "x"} and big.template.pod.metadata.labels == {"y": "z"}
    assert big.template.service.labels == {"team": "x"}
    assert fast.path_of("disks") == "spec.brokers.disks" and big.path_of("disks") == "spec.brokers.pools[1].disks"


@pytest.mark.parametrize(
    ("brokers", "problem"),
    [
        ({"replicas": 3, "pools": [{"name": "a", "replicas": 1}]}, "spec.brokers.replicas: does not go with pools"),
        ({"pools": []}, "spec.brokers.pools: must have at least one item"),
        ({"pools": {"name": "a"}}, "spec.brokers.pools: must be a list"),
        ({"pools": ["a"]}, "spec.brokers.pools[0]: must be a mapping"),
        ({"pools": [{"replicas": 1}]}, "spec.brokers.pools[0].name: is required"),
        ({"pools": [{"name": "A_b", "replicas": 1}]}, "spec.brokers.pools[0].name: must be lower case letters"),
        ({"pools": [{"name": "a" * 41, "replicas": 1}]}, "spec.brokers.pools[0].name: is longer than 40"),
        ({"pools": [{"name": "a"}]}, "spec.brokers.pools[0].replicas: is required"),
        ({"pools": [{"name": "a", "replicas": -1}]}, "spec.brokers.pools[0].replicas: must be between 0 and 1000"),
        ({"pools": [{"name": "a", "replicas": 0}]}, "spec.brokers.pools: have no broker"),
        ({"pools": [{"name": "a", "replicas": 1000}, {"name": "b", "replicas": 1}]}, "have 1001 brokers"),
        ({"pools": [{"name": "a", "replicas": 1}, {"name": "a", "replicas": 1}]}, "pools[1].name: 'a' is there twice"),
        ({"pools": [{"name": "a", "replicas": 1, "disk": [D0]}]}, "spec.brokers.pools[0].disk: is not a field here"),
        ({"pools": [{"name": "a", "replicas": 1, "disks": []}]}, "pools[0].disks: must have at least one item"),
        ({"pools": [{"name": "a", "replicas": 1, "disks": [D0, D0]}]}, "spec.brokers.pools[0].disks[1].name: 'd0'"),
        ({"pools": [{"name": "a", "replicas": 1, "config": {"no.such": 1}}]}, "pools[0].config.no.such: is not a"),
        ({"pools": [{"name": "a", "replicas": 1, "config": {"broker.id": 1}}]}, "pools[0].config.broker.id: is set by"),
        ({"pools": [{"name": "a", "replicas": 1, "template": {"bootstrapService": {}}}]}, "template.bootstrapService"),
        ({"pools": [{"name": "a", "replicas": 1, "idRange": {"first": 4}}]}, "pools[0].idRange.last: is required"),
        ({"pools": [{"name": "a", "replicas": 1, "idRange": {"first": 4, "last": 3}}]}, "idRange.last: 3 is less than"),
        ({"pools": [{"name": "a", "replicas": 2, "idRange": {"first": 4, "last": 4}}]}, "idRange: has 1 ids for 2"),
        (
            {
                "pools": [
                    {"name": "a", "replicas": 1, "idRange": {"first": 0, "last": 9}},
                    {"name": "b", "replicas": 1, "idRange": {"first": 9, "last": 20}},
                ]
            },
            "spec.brokers.pools[1].idRange: overlaps that of pool a, 0 to 9",
        ),
        (
            {"unmanagedConfig": ["num.io.threads"],
             "pools": [{"name": "a", "replicas": 1, "config": {"num.io.threads": 2}}]},
            "spec.brokers.unmanagedConfig: num.io.threads is in config too",
        ),
    ],
)  # fmt: skip
def test_a_wrong_pool_is_a_problem_that_names_its_field(brokers: dict[str, Any], problem: str) -> None:
    _, problems = _brokers(**brokers)
    assert len(problems) == 1 and problem in problems[0]


def test_defaults_follow_the_brokers_of_all_pools() -> None:
    pools = [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1}]
    cluster, _ = parse_cluster({"metadata": {"name": "c"}, "spec": {"brokers": {"pools": pools}}})
    assert default_broker_config(cluster)["offsets.topic.replication.factor"] == "2"


def test_brokers_of_main_take_places_by_range_first_and_then_in_the_order_of_pools() -> None:
    pools = [_pool("a", 2), _pool("b", 1, 2, 9), _pool("c", 1, 50, 59)]
    found = pools_of(pools, dict.fromkeys(range(5), "main"), has_pools=True)
    assert {number: pool.name for number, pool in found.items()} == {0: "a", 1: "a", 2: "b", 3: "c"}
    assert surplus(found, range(5)) == (4,), "there is no place for it"


def test_brokers_of_a_pool_that_is_no_longer_named_take_no_place() -> None:
    found = pools_of([_pool("new", 2)], {0: "old", 1: "old"}, has_pools=True)
    assert found == {} and surplus(found, [0, 1]) == (1, 0) and missing([_pool("new", 2)], found) == {"new": 2}


def test_brokers_of_main_stay_there_when_a_pool_has_that_name() -> None:
    found = pools_of([_pool("a", 2), _pool("main", 1)], {0: "main", 1: "main"}, has_pools=True)
    assert {pool.name for pool in found.values()} == {"main"} and surplus(found, found) == (1,)


def test_without_pools_every_broker_is_of_the_only_one() -> None:
    found = pools_of([_pool("main", 2)], {0: "fast", 7: "slow"}, has_pools=False)
    assert {pool.name for pool in found.values()} == {"main"} and surplus(found, found) == ()


def test_a_range_that_is_used_up_gives_fewer_ids() -> None:
    pools = [_pool("a", 3, 4, 5), _pool("b")]
    assert free_ids(pools[0], pools, [4], 2) == [5] and free_ids(pools[1], pools, [3], 5) == [0, 1, 2, 6, 7]
