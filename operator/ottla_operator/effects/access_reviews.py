"""Which rights the operator lacks in a namespace, as the API server says it.

One SelfSubjectRulesReview shows nearly all; it may be incomplete, so each right that it does not show is asked for by a
SelfSubjectAccessReview. Every account may ask both (ClusterRole system:basic-user). Neither stores anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ottla_operator.api.objects import Obj, dig
from ottla_operator.api.rights import Right

ROOT = "/apis/authorization.k8s.io/v1"

Post = Callable[[str, Obj], Awaitable[Obj]]


async def read_lacking_rights(post: Post, namespace: str, wanted: Sequence[Right]) -> list[Right]:
    """The wanted rights that the operator does not have in a namespace. Raises ApiError.

    Args:
        post: sends a body to a path of the API server.
    """
    rules = await post(f"{ROOT}/selfsubjectrulesreviews", _review("SelfSubjectRulesReview", {"namespace": namespace}))
    given = dig(rules, "status", "resourceRules") or []
    unshown = [right for right in wanted if not any(gives(rule, right) for rule in given)]
    found = []
    for right in unshown:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "namespace": namespace,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": right.verb,
        }
        body = _review("SelfSubjectAccessReview", {"resourceAttributes": attributes})
        if not dig(await post(f"{ROOT}/selfsubjectaccessreviews", body), "status", "allowed"):
            found.append(right)
    return found


def gives(rule: Mapping[str, Any], right: Right) -> bool:
    """Whether a rule of a role gives a right to every object.

    >>> rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    >>> gives(rule, Right("", "pods", "get")), gives(rule, Right("", "pods", "delete"))
    (True, False)
    >>> gives({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, Right("apps", "statefulsets", "patch"))
    True
    >>> gives({**rule, "resourceNames": ["a"]}, Right("", "pods", "get"))
    False
    """
    parts = ((right.group, "apiGroups"), (right.resource, "resources"), (right.verb, "verbs"))
    return not rule.get("resourceNames") and all({value, "*"} & set(rule.get(part) or ()) for value, part in parts)


def _review(kind: str, spec: Obj) -> Obj:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
