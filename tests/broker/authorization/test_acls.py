"""Filters of ACLs, and which ACLs are refused."""

from __future__ import annotations

import pytest

from ottla_broker.authorization.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    InvalidAcl,
    ResourcePattern,
    valid_acl,
)
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType

ANY, MATCH, LITERAL, PREFIXED = PatternType
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
PATTERNS = {
    "t": ResourcePattern(TOPIC, "t"),
    "*": ResourcePattern(TOPIC, "*"),
    "t prefix": ResourcePattern(TOPIC, "t", PREFIXED),
    "te prefix": ResourcePattern(TOPIC, "te", PREFIXED),
    "* prefix": ResourcePattern(TOPIC, "*", PREFIXED),
    "group": ResourcePattern(GROUP, "t"),
}
ENTRY = AccessControlEntry("User:a", "10.0.0.1", AclOperation.READ, PermissionType.DENY)


@pytest.mark.parametrize(
    ("meant", "found"),
    [
        (AclFilter(), {"t", "*", "t prefix", "te prefix", "* prefix", "group"}),
        (AclFilter(TOPIC), {"t", "*", "t prefix", "te prefix", "* prefix"}),
        (AclFilter(ResourceType.ANY, "t"), {"t", "t prefix", "group"}),
        (AclFilter(TOPIC, "t", LITERAL), {"t"}),
        (AclFilter(TOPIC, "t", PREFIXED), {"t prefix"}),
        (AclFilter(TOPIC, None, PREFIXED), {"t prefix", "te prefix", "* prefix"}),
        (AclFilter(TOPIC, "test", MATCH), {"*", "t prefix", "te prefix"}),
        (AclFilter(TOPIC, "*", MATCH), {"*", "* prefix"}),
        (AclFilter(TOPIC, None, MATCH), {"t", "*", "t prefix", "te prefix", "* prefix"}),
        (AclFilter(TOPIC, ""), set()),
        (AclFilter(99), set()),
        (AclFilter(TOPIC, "t", 99), set()),
    ],
)
def test_which_patterns_a_filter_means(meant: AclFilter, found: set[str]) -> None:
    """As Apache Kafka 3.9.1 answered."""
    assert {name for name, pattern in PATTERNS.items() if meant.matches_pattern(pattern)} == found


def test_which_entries_a_filter_means() -> None:
    assert AclFilter().matches_entry(ENTRY)
    assert AclFilter(principal="User:a", host="10.0.0.1", operation=3, permission=2).matches_entry(ENTRY)
    for other in (
        AclFilter(principal="User:b"),
        AclFilter(principal=""),
        AclFilter(host="*"),
        AclFilter(operation=AclOperation.ALL),
        AclFilter(operation=99),
        AclFilter(permission=PermissionType.ALLOW),
        AclFilter(permission=99),
    ):
        assert not other.matches_entry(ENTRY)


def named(meant: AclFilter) -> list[ResourcePattern] | None:
    found = meant.named_patterns()
    return None if found is None else list(found)


def test_a_filter_that_names_one_resource_names_its_patterns() -> None:
    assert named(AclFilter(TOPIC, "t", LITERAL)) == [PATTERNS["t"]]
    assert named(AclFilter(TOPIC, "t", ANY)) == [PATTERNS["t"], PATTERNS["t prefix"]]
    for scanned in (AclFilter(), AclFilter(TOPIC), AclFilter(name="t"), AclFilter(TOPIC, "t", MATCH)):
        assert named(scanned) is None
    for nothing in (AclFilter(99, "t"), AclFilter(TOPIC, "t", 99), AclFilter(TOPIC, ""), AclFilter(TOPIC, "a/b")):
        assert named(nothing) == []


def fields(**changed: object) -> dict[str, object]:
    return {
        "resource_type": 2,
        "name": "t",
        "pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission": 3,
        **changed,
    }


def test_an_acl_of_good_fields() -> None:
    for changed in (
        {},
        {"pattern_type": 4},
        {"name": "*"},
        {"operation": AclOperation.ALL},
        {"permission": PermissionType.DENY},
        {"principal": "Group:*"},
        {"principal": "User:a:b"},
        {"principal": "User:"},
        {"host": "10.0.0.0/8"},
        {"resource_type": 4, "name": "kafka-cluster", "operation": 8},
        {"resource_type": 7, "name": "User:x", "operation": 13},
    ):
        given = fields(**changed)
        acl = valid_acl(**given)  # type: ignore[arg-type]
        pattern = ResourcePattern(given["resource_type"], given["name"], given["pattern_type"])  # type: ignore[arg-type]
        entry = AccessControlEntry(given["principal"], given["host"], given["operation"], given["permission"])  # type: ignore[arg-type]
        assert acl == AclBinding(pattern, entry)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": ""}, "Invalid empty resource name"),
        ({"name": "", "pattern_type": 4}, "Invalid empty resource name"),
        ({"resource_type": 4, "operation": 8}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_type": 4, "name": "", "operation": 8}, "The only valid name for the CLUSTER resource is"),
        ({"name": "a/b"}, "resource name 'a/b': the character '/' is not allowed"),
        ({"name": "a\0b"}, "the character '\\x00' is not allowed"),
        ({"name": ".."}, "resource name '..'"),
        ({"resource_type": 1}, "resource type 1: one of 2 (TOPIC), 3 (GROUP)"),
        ({"resource_type": 99}, "resource type 99"),
        ({"resource_type": -1}, "resource type -1"),
        ({"pattern_type": 1}, "pattern type 1: one of 3 (LITERAL), 4 (PREFIXED)"),
        ({"pattern_type": 2}, "pattern type 2: one of 3 (LITERAL), 4 (PREFIXED)"),
        ({"operation": 1}, "operation 1: one of 2 (ALL), 3 (READ)"),
        ({"permission": 1}, "permission type 1: one of 2 (DENY), 3 (ALLOW)"),
        ({"permission": 4}, "permission type 4"),
        ({"principal": "alice"}, "principal 'alice': write its type before its name, such as User:alice"),
        ({"principal": ""}, "principal ''"),
        ({"principal": ":bob"}, "such as User:bob"),
        ({"operation": 9}, "operation ClusterAction: a resource of the type Topic has All, Read, Write"),
        ({"resource_type": 3, "operation": 4}, "operation Write: a resource of the type Group has All, Read, Delete"),
    ],
)
def test_an_acl_that_is_refused_says_which_field_is_wrong(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidAcl) as refused:
        valid_acl(**fields(**changed))  # type: ignore[arg-type]
    assert reason in str(refused.value)
