"""Decisions by ACLs: the rules of Apache Kafka's AclAuthorizer, and the same as a naive reading of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import AccessControlEntry, AclBinding, ResourcePattern
from ottla_broker.authorization.authorizer import AclCheck, Authorizer
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.security.principals import Principal

ALICE = Principal("User", "alice")
ADDRESS = "10.0.0.7"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
DENY, ALLOW = PermissionType.DENY, PermissionType.ALLOW
READ, WRITE, ALL, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL, AclOperation.DESCRIBE


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: PermissionType = ALLOW,
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = LITERAL,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AccessControlEntry(principal, host, operation, permission))


def authorizer_of(*acls: AclBinding, open_without_acl: bool = False, super_users: str = "") -> AclAuthorizer:
    found = AclAuthorizer([Principal("User", super_users)] if super_users else [], allows_without_acl=open_without_acl)
    put(found, acls)
    return found


def put(authorizer: AclAuthorizer, acls: tuple[AclBinding, ...]) -> None:
    for pattern in {one.pattern for one in acls}:
        authorizer.put(pattern, frozenset(one.entry for one in acls if one.pattern == pattern))


def may(authorizer: Authorizer, name: str, operation: AclOperation = READ, principal: Principal = ALICE) -> bool:
    (answer,) = authorizer.decide(principal, ADDRESS, [AclCheck(operation, TOPIC, name)])
    return answer


def test_without_an_acl_nothing_is_allowed_but_to_super_users() -> None:
    authorizer = authorizer_of(super_users="root")
    assert not may(authorizer, "t")
    assert may(authorizer, "t", principal=Principal("User", "root"))
    assert not may(authorizer, "t", principal=Principal("Group", "root"))


def test_with_the_key_everything_is_allowed_that_no_acl_is_about() -> None:
    authorizer = authorizer_of(acl("t", principal="User:bob"), acl("pre", pattern=PREFIXED), open_without_acl=True)
    assert may(authorizer, "other", WRITE)
    assert not may(authorizer, "t")
    assert not may(authorizer, "prefix", WRITE)


def test_the_acls_of_a_name_are_its_own_those_of_all_names_and_those_of_its_prefixes() -> None:
    assert may(authorizer_of(acl("orders")), "orders")
    assert not may(authorizer_of(acl("order")), "orders")
    assert may(authorizer_of(acl("*")), "orders")
    assert may(authorizer_of(acl("ord", pattern=PREFIXED)), "orders")
    assert may(authorizer_of(acl("orders", pattern=PREFIXED)), "orders")
    assert not may(authorizer_of(acl("orders-", pattern=PREFIXED)), "orders")
    assert not may(authorizer_of(acl("*", pattern=PREFIXED)), "orders")
    assert not may(authorizer_of(acl("orders", kind=GROUP)), "orders")


def test_a_deny_wins_whatever_else_allows() -> None:
    for deny in (
        acl("orders", READ, DENY),
        acl("*", READ, DENY),
        acl("o", READ, DENY, pattern=PREFIXED),
        acl("orders", ALL, DENY),
        acl("orders", READ, DENY, principal="User:*"),
        acl("orders", READ, DENY, host=ADDRESS),
    ):
        assert not may(authorizer_of(acl("orders"), acl("*", ALL), deny), "orders")
    for other in (
        acl("orders", WRITE, DENY),
        acl("orders", READ, DENY, principal="User:bob"),
        acl("orders", READ, DENY, host="10.0.0.8"),
    ):
        assert may(authorizer_of(acl("orders"), other), "orders")


def test_what_implies_describe_and_describe_configs() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, DESCRIBE, ALL):
        assert may(authorizer_of(acl("t", operation)), "t", DESCRIBE)
        assert not may(authorizer_of(acl("t", ALL), acl("t", DESCRIBE, DENY)), "t", DESCRIBE)
    assert not may(authorizer_of(acl("t", AclOperation.CREATE)), "t", DESCRIBE)
    assert may(authorizer_of(acl("t", AclOperation.ALTER_CONFIGS)), "t", AclOperation.DESCRIBE_CONFIGS)
    # A Deny on what implies it takes nothing away.
    assert may(authorizer_of(acl("t", DESCRIBE), acl("t", READ, DENY)), "t", DESCRIBE)


def test_the_star_is_a_user_and_an_address_and_nothing_else() -> None:
    assert may(authorizer_of(acl("t", principal="User:*")), "t")
    assert not may(authorizer_of(acl("t", principal="Group:*")), "t")
    assert may(authorizer_of(acl("t", host=ADDRESS)), "t")
    assert not may(authorizer_of(acl("t", host="10.0.0.0/8")), "t")


@pytest.mark.parametrize(
    ("acls", "is_allowed"),
    [
        # Seen on Apache Kafka 3.9.1 at InitProducerId (KIP-679).
        ((), False),
        ((acl("secret", WRITE),), True),
        ((acl("secret", ALL),), True),
        ((acl("secret", READ),), False),
        ((acl("sec", WRITE, pattern=PREFIXED),), True),
        ((acl("secret", WRITE, kind=GROUP),), False),
        ((acl("secret", WRITE), acl("*", WRITE, DENY)), False),
        ((acl("secret", WRITE), acl("sec", WRITE, DENY, pattern=PREFIXED)), False),
        ((acl("secret", WRITE), acl("open", WRITE), acl("secret", WRITE, DENY)), True),
        ((acl("secret", WRITE), acl("secret", WRITE, DENY)), False),
        # As the code of AclAuthorizer has it.
        ((acl("secret", WRITE), acl("secret", WRITE, DENY, principal="User:*")), False),
        ((acl("sec", WRITE, pattern=PREFIXED), acl("s", WRITE, DENY, pattern=PREFIXED)), False),
        ((acl("s", WRITE, pattern=PREFIXED), acl("sec", WRITE, DENY, pattern=PREFIXED)), True),
        ((acl("sec", WRITE, pattern=PREFIXED), acl("sec", WRITE, DENY)), True),
        ((acl("*", WRITE), acl("s", WRITE, DENY, pattern=PREFIXED)), True),
        ((acl("secret", WRITE, host="10.0.0.8"),), False),
    ],
)
@pytest.mark.public_report(18)
def test_whether_an_operation_is_allowed_on_any_name(acls: tuple[AclBinding, ...], is_allowed: bool) -> None:
    assert authorizer_of(*acls).allows_any(ALICE, ADDRESS, WRITE, TOPIC) is is_allowed


def test_any_name_is_allowed_to_super_users_and_without_acls_where_everyone_is() -> None:
    root = Principal("User", "root")
    assert authorizer_of(acl("*", ALL, DENY), super_users="root").allows_any(root, ADDRESS, WRITE, TOPIC)
    open_one = authorizer_of(acl("t", WRITE, DENY), open_without_acl=True)
    assert open_one.allows_any(ALICE, ADDRESS, WRITE, TOPIC)
    assert not authorizer_of(acl("*", WRITE, DENY), open_without_acl=True).allows_any(ALICE, ADDRESS, WRITE, TOPIC)


def test_the_version_grows_with_what_changes_and_not_else() -> None:
    authorizer = authorizer_of(acl("t"))
    version = authorizer.version
    pattern = ResourcePattern(TOPIC, "t")
    authorizer.put(pattern, authorizer.acls[pattern])
    authorizer.put(ResourcePattern(TOPIC, "nobody"), frozenset())
    assert authorizer.version == version
    authorizer.put(pattern, frozenset())
    assert authorizer.version > version
    assert authorizer.acls == {}


class Naive:
    """The rules of the reference, word for word, over a list."""

    def __init__(self, acls: list[AclBinding], open_without_acl: bool) -> None:
        self.acls = acls
        self.open_without_acl = open_without_acl

    def allows(self, principal: str, host: str, check: AclCheck) -> bool:
        about = [
            one.entry
            for one in self.acls
            if one.pattern.resource_type is check.resource_type
            and (
                check.name.startswith(one.pattern.name)
                if one.pattern.pattern_type is PREFIXED
                else one.pattern.name in (check.name, "*")
            )
        ]
        if not about:
            return self.open_without_acl

        def matches(permission: PermissionType, operations: set[AclOperation]) -> bool:
            return any(
                entry.permission is permission
                and entry.principal in (principal, "User:*")
                and entry.host in (host, "*")
                and entry.operation in {*operations, ALL}
                for entry in about
            )

        implied = {
            DESCRIBE: {DESCRIBE, READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
            AclOperation.DESCRIBE_CONFIGS: {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS},
        }
        return not matches(DENY, {check.operation}) and matches(ALLOW, implied.get(check.operation, {check.operation}))

    def allows_any(self, principal: str, host: str, operation: AclOperation) -> bool:
        def names(permission: PermissionType, pattern_type: PatternType) -> set[str]:
            return {
                one.pattern.name
                for one in self.acls
                if one.pattern.resource_type is TOPIC
                and one.pattern.pattern_type is pattern_type
                and one.entry.permission is permission
                and one.entry.principal in (principal, "User:*")
                and one.entry.host in (host, "*")
                and one.entry.operation in (operation, ALL)
            }

        denied, prefixes = names(DENY, LITERAL), names(DENY, PREFIXED)
        if "*" in denied:
            return False
        if self.open_without_acl:
            return True
        free = {name for name in names(ALLOW, LITERAL) | names(ALLOW, PREFIXED) if not name.startswith(tuple(prefixes))}
        literal = {name for name in names(ALLOW, LITERAL) & free if name not in denied}
        return "*" in names(ALLOW, LITERAL) or bool(literal) or bool(names(ALLOW, PREFIXED) & free)


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "*a"])
OPERATIONS = st.sampled_from([READ, WRITE, ALL, DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS])
ACLS = st.builds(
    AclBinding,
    st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.sampled_from([LITERAL, PREFIXED])),
    st.builds(
        AccessControlEntry,
        st.sampled_from(["User:alice", "User:bob", "User:*", "Group:*"]),
        st.sampled_from(["*", ADDRESS, "10.0.0.8"]),
        OPERATIONS,
        st.sampled_from([DENY, ALLOW, ALLOW]),
    ),
)


@given(
    steps=st.lists(st.lists(ACLS, max_size=12), min_size=1, max_size=3),
    open_without_acl=st.booleans(),
    name=st.sampled_from(["a", "ab", "abcd", "b", "c", "*", "*ab"]),
    operation=OPERATIONS,
    principal=st.sampled_from([ALICE, Principal("User", "carol"), Principal("Group", "alice")]),
)
def test_it_decides_as_a_naive_reading_of_the_rules_whatever_the_acls_were_before(
    steps: list[list[AclBinding]],
    open_without_acl: bool,
    name: str,
    operation: AclOperation,
    principal: Principal,
) -> None:
    authorizer = AclAuthorizer(allows_without_acl=open_without_acl)
    for acls in steps:
        for pattern in {*authorizer.acls} - {one.pattern for one in acls}:
            authorizer.put(pattern, frozenset())
        put(authorizer, tuple(acls))
        naive = Naive(acls, open_without_acl)
        check = AclCheck(operation, TOPIC, name)
        assert authorizer.decide(principal, ADDRESS, [check]) == [naive.allows(str(principal), ADDRESS, check)]
        expected = naive.allows_any(str(principal), ADDRESS, operation)
        assert authorizer.allows_any(principal, ADDRESS, operation, TOPIC) is expected
