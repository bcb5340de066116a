"""Paths of client quotas in the coordination store, as Kafka 3.9 writes them; the rest of the layout is `znodes`.

    /config/users/U            a user
    /config/users/U/clients/C  a client id of a user
    /config/clients/C          a client id
    /config/ips/IP             an address

U, C and IP are percent-encoded names, or `<default>`. The content is that of every entity (`znodes.encode_config`);
a user's also has the SCRAM credentials of the user. Pure.

Source: org.apache.kafka.common.utils.Sanitizer, kafka.zk.AdminZkClient.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.coordination.znodes import DEFAULT_ENTITY, ZnodeError, desanitize, sanitize
from ottla_broker.quotas.entities import DEFAULT, EntityName, QuotaEntity

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"
ENTITY_TYPES: Final = (USERS, CLIENTS, IPS)


def entity_path(entity: QuotaEntity) -> str:
    """The path below /config, as change notifications have it.

    >>> entity_path(QuotaEntity(user="CN=alice, O=x", client_id=DEFAULT))
    'users/CN%3Dalice%2C%20O%3Dx/clients/<default>'
    """
    if entity.ip is not None:
        return f"{IPS}/{_node(entity.ip)}"
    if entity.user is None:
        assert entity.client_id is not None
        return f"{CLIENTS}/{_node(entity.client_id)}"
    user = f"{USERS}/{_node(entity.user)}"
    return user if entity.client_id is None else f"{user}/{CLIENTS}/{_node(entity.client_id)}"


def parse_entity_path(path: str) -> QuotaEntity:
    """The entity at a path below /config. Raises ZnodeError when it is none of a quota.

    >>> parse_entity_path("clients/my%20app")
    QuotaEntity(user=None, client_id='my app', ip=None)
    """
    match path.split("/"):
        case [kind, name] if kind == USERS and name:
            return QuotaEntity(user=_name(name))
        case [kind, name] if kind == CLIENTS and name:
            return QuotaEntity(client_id=_name(name))
        case [kind, name] if kind == IPS and name:
            return QuotaEntity(ip=_name(name))
        case [kind, user, clients, client_id] if (kind, clients) == (USERS, CLIENTS) and user and client_id:
            return QuotaEntity(user=_name(user), client_id=_name(client_id))
    raise ZnodeError(f"/config/{path} is no user, client id or address")


def _node(name: EntityName) -> str:
    return DEFAULT_ENTITY if name is DEFAULT else sanitize(str(name))


def _name(node: str) -> EntityName:
    return DEFAULT if node == DEFAULT_ENTITY else desanitize(node)
