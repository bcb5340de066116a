"""The problems of pod templates: what of them would replace fields of the StatefulSets that the operator builds."""

from __future__ import annotations

from dataclasses import replace

from ottla_broker.config import BrokerConfig, ConfigError
from ottla_documents.broker_pools import BrokerPool
from ottla_documents.schema.marks import Problem
from ottla_documents.templates import NO_TEMPLATE
from ottla_operator.api import names
from ottla_operator.concerns.brokers.brokers import build_stateful_set
from ottla_operator.concerns.ensemble.observation import EnsembleObservation
from ottla_operator.concerns.ensemble.zookeeper_objects import server_stateful_set
from ottla_operator.facts.broker_claims import FIRST_GENERATION, Claim
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.objects.pod_template import template_problems

ZOOKEEPER_POD = "spec.zookeeper.template.pod"
PULL_POLICY = {"imagePullPolicy": "spec.imagePullPolicy"}
AFTER_SHUTDOWN_S = 15
"""What a broker needs beside its controlled shutdown: to flush and to end."""


def find_template_problems(snapshot: Snapshot, ensemble: EnsembleObservation) -> tuple[Problem, ...]:
    """The problems of both pod templates, with the paths of their fields."""
    cluster = snapshot.cluster
    own = replace(
        cluster,
        zookeeper=replace(cluster.zookeeper, template=NO_TEMPLATE),
    )
    bare = replace(snapshot, cluster=own)
    found: list[Problem] = []
    for pool in cluster.brokers.pools:
        if not pool.template.pod.spec:
            continue
        claims = tuple(Claim("", disk.name, FIRST_GENERATION, "New", "") for disk in pool.disks)
        built = build_stateful_set(bare, replace(pool, template=NO_TEMPLATE), 0, "", claims, "")
        path = pool.path_of("template.pod")
        instead = {**PULL_POLICY, "image": "spec.image", "resources": pool.path_of("resources")}
        found += template_problems(path, built, names.BROKER, pool.template.pod, instead)
        found += _grace_problems(pool)
    if cluster.zookeeper.template.pod.spec and not cluster.zookeeper.connect:
        instead = {**PULL_POLICY, "image": "spec.zookeeper.image", "resources": "spec.zookeeper.resources"}
        built = server_stateful_set(bare, ensemble, 1)
        found += template_problems(ZOOKEEPER_POD, built, names.ZOOKEEPER, cluster.zookeeper.template.pod, instead)
    return tuple(dict.fromkeys(found))


def _grace_problems(pool: BrokerPool) -> list[Problem]:
    """A grace period that ends before the controlled shutdown does."""
    grace_s = pool.template.pod.spec.get("terminationGracePeriodSeconds")
    if grace_s is None:
        return []
    try:
        config = BrokerConfig.from_mapping({"zookeeper.connect": "zookeeper:2181", **pool.config})
    except ConfigError:
        return []  # ConfigValid reports it
    needed_s = config.ottla_shutdown_timeout_ms / 1000 + AFTER_SHUTDOWN_S
    if grace_s >= needed_s:
        return []
    message = (
        f"{grace_s} s are less than the controlled shutdown may take (ottla.shutdown.timeout.ms and "
        f"{AFTER_SHUTDOWN_S} s, {needed_s:g} s); set ottla.shutdown.timeout.ms in {pool.path_of('config')} too"
    )
    return [Problem(f"{pool.path_of('template.pod')}.spec.terminationGracePeriodSeconds", message)]
