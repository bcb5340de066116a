"""The ACL of a znode by its path: with zookeeper.set.acl, and without. Pure; every create asks here.

With it, whoever ZooKeeper knows the session as may do everything, and anyone may read what is not sensitive: passwords
of users, configurations of brokers, delegation tokens. /consumers itself stays open, since consumers before 0.9 write
there without a login. The paths of Ottla's own follow the rule of Apache Kafka's.

Source: kafka.zk.ZkData.defaultAcls, SecureRootPaths and SensitiveRootPaths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions

from ottla_broker.coordination.security_znodes import SECURE_ROOTS, SENSITIVE_ROOTS
from ottla_broker.coordination.znodes import CONSUMERS, OTTLA

Acl: TypeAlias = tuple[tuple[int, str, str], ...]
"""Permissions (bits of ZooKeeper), scheme and id of each entry. ("auth", "") stands for all that ZooKeeper knows the
session as; a read gives what it was then, such as ("sasl", "kafka")."""
AclOf: TypeAlias = Callable[[str], Acl]
"""The ACL of a path without chroot; the chroot itself has that of "/"."""

PROTECTED_ROOTS = (*SECURE_ROOTS, OTTLA)
"""What a migration changes, with all below; /consumers is not among them."""
_WRITES = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN


def _of_kazoo(entries: Iterable[object]) -> Acl:
    return tuple((entry.perms, entry.id.scheme, entry.id.id) for entry in entries)  # type: ignore[attr-defined]


_OPEN, _CREATOR, _READABLE = (_of_kazoo(one) for one in (OPEN_ACL_UNSAFE, CREATOR_ALL_ACL, READ_ACL_UNSAFE))


def open_acl(_path: str) -> Acl:
    """Without zookeeper.set.acl: anyone may do everything.

    >>> open_acl("/config/users/alice")
    ((31, 'world', 'anyone'),)
    """
    return _OPEN


def secure_acl(path: str) -> Acl:
    """With zookeeper.set.acl.

    >>> secure_acl("/brokers/topics")
    ((31, 'auth', ''), (1, 'world', 'anyone'))
    >>> secure_acl("/config/users/alice")
    ((31, 'auth', ''),)
    """
    if path == CONSUMERS:
        return _OPEN
    return _CREATOR if is_sensitive(path) else _CREATOR + _READABLE


def is_sensitive(path: str) -> bool:
    """Whether only brokers may read the node. As in Apache Kafka, a name that goes on behind the root counts too."""
    return path.startswith(SENSITIVE_ROOTS)


def is_open(path: str, acl: Acl) -> bool:
    """Whether anyone may change the node, or read it although it is sensitive.

    >>> is_open("/config/users", ((1, "world", "anyone"),)), is_open("/config", ((1, "world", "anyone"),))
    (True, False)
    """
    forbidden = _WRITES | (Permissions.READ if is_sensitive(path) else 0)
    return any(scheme == "world" and permissions & forbidden for permissions, scheme, _ in acl)
