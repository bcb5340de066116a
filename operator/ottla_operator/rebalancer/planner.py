"""Makes a plan of a fleet: where every replica should be, and what has to move for that.

The same fleet gives the same plan, in whatever order it is written. The plan of a fleet in which a plan has been
carried out is empty, unless directories were too full before. Replicas move only because they must (`placement`), or
because a broker is outside of the tolerance (`balance`).

Worked example: broker 3 is new.

    >>> from ottla_operator.facts.fleet_values import FleetBroker, FleetPlacement, FleetPartition, Policy, FleetReplica
    >>> brokers = tuple(FleetBroker(number, rack="abc"[number % 3], node=f"n{number}") for number in range(4))
    >>> partitions = tuple(
    ...     FleetPartition("t", index, tuple(FleetReplica((index + n) % 3) for n in range(2))) for index in range(6)
    ... )
    >>> for reassignment in plan(FleetPlacement(brokers, partitions), Policy()).reassignments:
    ...     print(reassignment)
    t-0: [0, 1] -> [3, 1]
    t-1: [1, 2] -> [3, 2]
"""

from __future__ import annotations

from ottla_operator.facts.fleet_values import FleetPlacement, Plan, Policy, Reassignment
from ottla_operator.rebalancer.assignment import Assignment
from ottla_operator.rebalancer.balance import balance
from ottla_operator.rebalancer.leaders import balance_leaders
from ottla_operator.rebalancer.log_dirs import plan_log_dirs, without_room
from ottla_operator.rebalancer.placement import place


def plan(fleet: FleetPlacement, policy: Policy) -> Plan:
    """What has to move. Partitions that cannot be placed stay as they are and are in `Plan.refusals`."""
    assignment = Assignment(fleet, policy)
    assignment.evicted = without_room(assignment)
    refusals = place(assignment)
    if policy.balance:
        balance(assignment)
        balance_leaders(assignment)
    dirs = plan_log_dirs(assignment)
    draining = {broker.id for broker in fleet.brokers if broker.state == "draining"}
    found: list[Reassignment] = []
    for p, partition in enumerate(assignment.partitions):
        after = tuple(assignment.replicas[p])
        if after != partition.brokers:
            log_dirs = {broker: dirs.placed[p, broker] for broker in after if (p, broker) in dirs.placed}
            found.append(
                Reassignment(
                    partition.topic, partition.index, partition.brokers, after, partition.size_bytes, log_dirs or None
                )
            )
    found.sort(key=lambda one: (not draining & set(one.removed), not one.added, one.id))
    refused = {(refusal.topic, refusal.index) for refusal in refusals}
    refusals += [refusal for refusal in dirs.refusals if (refusal.topic, refusal.index) not in refused]
    return Plan(tuple(found), dirs.moves, tuple(refusals))
