"""APIs whose rights are on transactional ids; some on topics and groups too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.security.names import (
    IDLE_GROUP,
    TOPIC,
    TOPICS,
    TRANSACTIONAL_ID,
    TRANSACTIONAL_IDS,
    Names,
    beside,
    one_of,
)
from tests.beside.security.rows import Row
from tests.beside.security.world import World

_Op, _Type = AclOperation, ResourceType
_WRITE, _DESCRIBE = (_Op.WRITE, _Type.TRANSACTIONAL_ID), (_Op.DESCRIBE, _Type.TRANSACTIONAL_ID)
_WRITE_TOPIC, _READ_TOPIC, _DESCRIBE_TOPIC = (
    (_Op.WRITE, _Type.TOPIC),
    (_Op.READ, _Type.TOPIC),
    (_Op.DESCRIBE, _Type.TOPIC),
)
_READ_GROUP = (_Op.READ, _Type.GROUP)
_CLUSTER_ACTION, _ALTER_CLUSTER = (_Op.CLUSTER_ACTION, _Type.CLUSTER), (_Op.ALTER, _Type.CLUSTER)
_TRANSACTION_KEY = 1
_TIMEOUT_MS = 60_000
_TOO_LONG_MS = 2**31 - 1


def _names(names: Names) -> Sequence[str]:
    assert names.topics is not None
    return names.topics


def _find_coordinator(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.FIND_COORDINATOR)
    keys = list(names.transactional_ids)
    if version < 4:
        return api.FindCoordinatorRequest(key=keys[0], key_type=_TRANSACTION_KEY) if len(keys) == 1 else None
    return api.FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=keys)


def _init_idempotent(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.INIT_PRODUCER_ID)
    return api.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TIMEOUT_MS)


def _init(world: World, names: Names, version: int, timeout_ms: int = _TIMEOUT_MS) -> Any:
    world.producer(names.transactional_ids[0])
    api = codec.module(ApiKey.INIT_PRODUCER_ID)
    return api.InitProducerIdRequest(transactional_id=names.transactional_ids[0], transaction_timeout_ms=timeout_ms)


def _init_with_a_bad_timeout(world: World, names: Names, version: int) -> Any:
    return _init(world, names, version, _TOO_LONG_MS)


def _add_partitions(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ADD_PARTITIONS_TO_TXN)
    producer_id, epoch = world.producer(names.transactional_ids[0])
    return api.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=names.transactional_ids[0],
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[api.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in _names(names)],
    )


def _verify_partitions(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.ADD_PARTITIONS_TO_TXN)
    transactions = []
    for transactional_id in names.transactional_ids:
        producer_id, epoch = world.transaction(transactional_id, TOPIC)
        transaction = api.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=True,
            topics=[api.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in _names(names)],
        )
        transactions.append(transaction)
    return api.AddPartitionsToTxnRequest(transactions=transactions)


def _add_offsets(world: World, names: Names, version: int) -> Any:
    producer_id, epoch = world.producer(names.transactional_ids[0])
    return codec.module(ApiKey.ADD_OFFSETS_TO_TXN).AddOffsetsToTxnRequest(
        transactional_id=names.transactional_ids[0],
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=names.groups[0],
    )


def _end(world: World, names: Names, version: int) -> Any:
    producer_id, epoch = world.transaction(names.transactional_ids[0], TOPIC)
    return codec.module(ApiKey.END_TXN).EndTxnRequest(
        transactional_id=names.transactional_ids[0], producer_id=producer_id, producer_epoch=epoch, committed=True
    )


def _commit_offsets(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.TXN_OFFSET_COMMIT)
    producer_id, epoch = world.producer(names.transactional_ids[0])
    part = api.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return api.TxnOffsetCommitRequest(
        transactional_id=names.transactional_ids[0],
        group_id=names.groups[0],
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[api.TxnOffsetCommitRequestTopic(name=name, partitions=[part]) for name in _names(names)],
    )


def _describe(world: World, names: Names, version: int) -> Any:
    world.transaction(TRANSACTIONAL_ID, TOPIC)
    api = codec.module(ApiKey.DESCRIBE_TRANSACTIONS)
    return api.DescribeTransactionsRequest(transactional_ids=list(names.transactional_ids))


def _list(world: World, names: Names, version: int) -> Any:
    world.transaction(TRANSACTIONAL_ID, TOPIC)
    return codec.module(ApiKey.LIST_TRANSACTIONS).ListTransactionsRequest()


def _write_markers(world: World, names: Names, version: int) -> Any:
    """Of a producer that nobody is."""
    api = codec.module(ApiKey.WRITE_TXN_MARKERS)
    topics = [api.WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in _names(names)]
    marker = api.WritableTxnMarker(producer_id=999_999, producer_epoch=0, transaction_result=True, topics=topics)
    return api.WriteTxnMarkersRequest(markers=[marker])


_TOPICS_OF_ONE = beside(TOPICS, transactional_ids=(TRANSACTIONAL_ID,))
_WITH_MISSING_ID = {
    **_TOPICS_OF_ONE,
    "missing transactional id": _TOPICS_OF_ONE["existing"].missing(_Type.TRANSACTIONAL_ID),
}
_GROUP_OF_ONE = beside(one_of(TRANSACTIONAL_IDS), groups=(IDLE_GROUP,))
_TOPICS_AND_GROUP = beside(_WITH_MISSING_ID, groups=(IDLE_GROUP,))

ROWS = (
    Row(ApiKey.FIND_COORDINATOR, _find_coordinator, (_DESCRIBE,), TRANSACTIONAL_IDS, "of transactions", lowest=1),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        _init_idempotent,
        ((_Op.IDEMPOTENT_WRITE, _Type.CLUSTER),),
        {"": Names(topics=(TOPIC,))},
        "without a transactional id",
        instead=((_WRITE_TOPIC,), (_READ_TOPIC,), ((_Op.ALL, _Type.TOPIC),)),
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        _init,
        (_WRITE,),
        {"existing": TRANSACTIONAL_IDS["existing"]},
        "with a transactional id",
        instead=((_DESCRIBE,),),
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        _init_with_a_bad_timeout,
        (_WRITE,),
        one_of(TRANSACTIONAL_IDS),
        "with a bad timeout",
    ),
    Row(ApiKey.ADD_PARTITIONS_TO_TXN, _add_partitions, (_WRITE, _WRITE_TOPIC), _WITH_MISSING_ID, highest=3),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        _verify_partitions,
        (_CLUSTER_ACTION,),
        {**beside(TRANSACTIONAL_IDS, topics=(TOPIC,)), **_TOPICS_OF_ONE},
        "of a broker",
        lowest=4,
        instead=((_WRITE, _WRITE_TOPIC),),
    ),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        _add_offsets,
        (_WRITE, _READ_GROUP),
        {**_GROUP_OF_ONE, "missing group": _GROUP_OF_ONE["existing"].missing(_Type.GROUP)},
    ),
    Row(ApiKey.END_TXN, _end, (_WRITE,), one_of(TRANSACTIONAL_IDS), instead=((_DESCRIBE,),)),
    Row(
        ApiKey.TXN_OFFSET_COMMIT,
        _commit_offsets,
        (_WRITE, _READ_GROUP, _READ_TOPIC),
        {**_TOPICS_AND_GROUP, "missing group": _TOPICS_AND_GROUP["existing"].missing(_Type.GROUP)},
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        _describe,
        (_DESCRIBE, _DESCRIBE_TOPIC),
        beside(TRANSACTIONAL_IDS, topics=(TOPIC,)),
        instead=((_WRITE,),),
    ),
    Row(
        ApiKey.LIST_TRANSACTIONS,
        _list,
        (_DESCRIBE,),
        {"": Names(transactional_ids=(TRANSACTIONAL_ID,))},
        instead=((_WRITE,), ((_Op.DESCRIBE, _Type.CLUSTER),)),
    ),
    Row(
        ApiKey.WRITE_TXN_MARKERS,
        _write_markers,
        (_CLUSTER_ACTION,),
        TOPICS,
        instead=((_ALTER_CLUSTER,), (_WRITE_TOPIC,)),
    ),
)
