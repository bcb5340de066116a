"""What the requests are about, on one of the two brokers: made by a super user, who also gives and takes rights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla_broker.authorization.resources import PatternType, PermissionType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.record import Record, build_batch
from tests.beside.comparison import Broker
from tests.beside.requests import Request
from tests.beside.security.names import GROUP, IDLE_GROUP, MISSING, OTHER_TOPIC, TOPIC, TRANSACTIONAL_ID, Right
from tests.integration.local_fleet import eventually

ADMIN, ASKER = "CN=admin", "CN=asker"
"""Subjects of the certificates of the super user and of who asks: their names."""
UNKNOWN_ID = b"\7" * 16
_ASKER_PRINCIPAL = f"User:{ASKER}"
_TIME_MS = 1_700_000_000_000
_ANY = 1
_HALF_AN_HOUR_MS = 1_800_000
_TIMEOUT_MS = 60_000


class World:
    """
    Args:
        admin: asks as a super user.
    """

    def __init__(self, admin: Broker) -> None:
        self._admin = admin
        self._token = b""
        self.open = (-1, -1)
        """Producer id and epoch of a transaction that goes on for several requests."""
        self._rights: tuple[Right, ...] | None = None
        self._member = ""
        self._generation = 0
        self.aliases: dict[str, str] = {UNKNOWN_ID.hex(): f"<id of {MISSING}>"}
        """What is random on each broker, and what stands for it where answers are compared."""

    def set_up(self) -> None:
        """Makes all of it. Waits until the broker coordinates groups and transactions."""
        for key_type, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
            find = codec.module(ApiKey.FIND_COORDINATOR).FindCoordinatorRequest(key=key, key_type=key_type)
            self._until(ApiKey.FIND_COORDINATOR, 3, find, lambda answer: answer.error_code == 0)
        self.restore()
        self._join()
        self.producer(TRANSACTIONAL_ID)

    def restore(self) -> None:
        """Makes the topics that are gone, and removes those that should not be."""
        eventually(self._is_nothing_missing_there, f"the end of {MISSING}")
        found = self._topics((TOPIC, OTHER_TOPIC))
        for name in (TOPIC, OTHER_TOPIC):
            if found[name].error_code != 0:
                self._create(name)
        self._commit()

    def grant(self, rights: Sequence[Right]) -> None:
        """These, and no others."""
        if self._rights is None or set(self._rights) - set(rights):
            self._revoke()
        missing = [right for right in rights if right not in (self._rights or ())]
        if missing:
            api = codec.module(ApiKey.CREATE_ACLS)
            creations = [
                api.AclCreation(
                    resource_type=int(right.resource_type),
                    resource_name=right.name,
                    resource_pattern_type=int(PatternType.LITERAL),
                    principal=_ASKER_PRINCIPAL,
                    host="*",
                    operation=int(right.operation),
                    permission_type=int(PermissionType.ALLOW),
                )
                for right in missing
            ]
            answer = self._ask(ApiKey.CREATE_ACLS, 3, api.CreateAclsRequest(creations=creations))
            assert not any(one.error_code for one in answer.results), answer.results[0].error_message
        self._rights = tuple(rights)

    def topic_id(self, name: str) -> bytes:
        """That of a missing topic is one that no topic has."""
        if name == MISSING:
            return UNKNOWN_ID
        topic_id: bytes = bytes(self._topics((name,))[name].topic_id)
        self.aliases[topic_id.hex()] = f"<id of {name}>"
        return topic_id

    def member(self, group: str) -> tuple[str, int]:
        """The only member of the group and its generation; of other groups one that does not exist."""
        return (self._member, self._generation) if group == GROUP else ("nobody", 1)

    def producer(self, transactional_id: str) -> tuple[int, int]:
        """Producer id and epoch, without an open transaction; ones that do not exist for an id that is missing."""
        if transactional_id != TRANSACTIONAL_ID:
            return 999_999, 0
        api = codec.module(ApiKey.INIT_PRODUCER_ID)
        body = api.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
        answer = self._until(ApiKey.INIT_PRODUCER_ID, 4, body, lambda answer: answer.error_code == 0)
        return answer.producer_id, answer.producer_epoch

    def transaction(self, transactional_id: str, *topics: str) -> tuple[int, int]:
        """As `producer`, with a transaction that is open on partition 0 of those topics that exist."""
        producer_id, epoch = self.producer(transactional_id)
        api = codec.module(ApiKey.ADD_PARTITIONS_TO_TXN)
        there = [name for name in topics if name != MISSING]
        if transactional_id == TRANSACTIONAL_ID and there:
            body = api.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[api.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in there],
            )
            self._until(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                body,
                lambda answer: (
                    not any(
                        partition.partition_error_code
                        for topic in answer.results_by_topic_v3_and_below
                        for partition in topic.results_by_partition
                    )
                ),
            )
        return producer_id, epoch

    def token(self) -> bytes:
        """The HMAC of a delegation token of the super user; that of none where the broker has no tokens."""
        if not self._token:
            api = codec.module(ApiKey.CREATE_DELEGATION_TOKEN)
            answer = self._ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, api.CreateDelegationTokenRequest(max_lifetime_ms=-1))
            self._token = bytes(answer.hmac) or b"x"
        return self._token

    def _revoke(self) -> None:
        api = codec.module(ApiKey.DELETE_ACLS)
        every = api.DeleteAclsFilter(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=_ASKER_PRINCIPAL,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        answer = self._ask(ApiKey.DELETE_ACLS, 3, api.DeleteAclsRequest(filters=[every]))
        assert answer.filter_results[0].error_code == 0, answer.filter_results[0].error_message
        self._rights = ()

    def _topics(self, names: Iterable[str]) -> dict[str, Any]:
        api = codec.module(ApiKey.METADATA)
        topics = [api.MetadataRequestTopic(name=name) for name in names]
        answer = self._ask(ApiKey.METADATA, 12, api.MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        return {topic.name: topic for topic in answer.topics}

    def _create(self, name: str) -> None:
        api = codec.module(ApiKey.CREATE_TOPICS)
        topic = api.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        body = api.CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        # One that is being deleted still exists for a while.
        self._until(ApiKey.CREATE_TOPICS, 7, body, lambda answer: answer.topics[0].error_code == 0)
        eventually(lambda: self._is_led(name), f"the leader of {name}")
        self.topic_id(name)
        produce = codec.module(ApiKey.PRODUCE)
        part = produce.PartitionProduceData(index=0, records=batch())
        data = produce.TopicProduceData(name=name, partition_data=[part])
        body = produce.ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
        self._until(ApiKey.PRODUCE, 9, body, lambda answer: answer.responses[0].partition_responses[0].error_code == 0)

    def _is_led(self, name: str) -> bool:
        topic = self._topics((name,))[name]
        return topic.error_code == 0 and all(partition.leader_id >= 0 for partition in topic.partitions)

    def _is_nothing_missing_there(self) -> bool:
        """Asks the controller: one that has just been created, or is being deleted, is in no broker's metadata."""
        create, delete = codec.module(ApiKey.CREATE_TOPICS), codec.module(ApiKey.DELETE_TOPICS)
        topic = create.CreatableTopic(name=MISSING, num_partitions=1, replication_factor=1)
        body = create.CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=True)
        if self._ask(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code == 0:
            return True
        if self._topics((MISSING,))[MISSING].error_code == 0:
            named = delete.DeleteTopicState(name=MISSING)
            self._ask(ApiKey.DELETE_TOPICS, 6, delete.DeleteTopicsRequest(topics=[named], timeout_ms=_TIMEOUT_MS))
        return False

    def _join(self) -> None:
        join, sync = codec.module(ApiKey.JOIN_GROUP), codec.module(ApiKey.SYNC_GROUP)
        protocols = [join.JoinGroupRequestProtocol(name="range", metadata=b"m")]
        body = join.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=_HALF_AN_HOUR_MS,
            rebalance_timeout_ms=_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = self._until(ApiKey.JOIN_GROUP, 3, body, lambda answer: answer.error_code == 0)
        self._member, self._generation = joined.member_id, joined.generation_id
        self.aliases[self._member] = "<member>"
        assignment = sync.SyncGroupRequestAssignment(member_id=self._member, assignment=b"a")
        synced = sync.SyncGroupRequest(
            group_id=GROUP, generation_id=self._generation, member_id=self._member, assignments=[assignment]
        )
        self._until(ApiKey.SYNC_GROUP, 3, synced, lambda answer: answer.error_code == 0)

    def _commit(self) -> None:
        api = codec.module(ApiKey.OFFSET_COMMIT)
        partition = api.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = api.OffsetCommitRequestTopic(name=OTHER_TOPIC, partitions=[partition])
        body = api.OffsetCommitRequest(group_id=IDLE_GROUP, topics=[topic])
        self._until(ApiKey.OFFSET_COMMIT, 7, body, lambda answer: answer.topics[0].partitions[0].error_code == 0)

    def _until(self, api_key: ApiKey, version: int, body: Any, holds: Callable[[Any], bool]) -> Any:
        answers: list[Any] = []

        def is_so() -> bool:
            answers[:] = [self._ask(api_key, version, body)]
            return holds(answers[0])

        eventually(is_so, f"{api_key.name} of the super user")
        return answers[0]

    def _ask(self, api_key: ApiKey, version: int, body: Any) -> Any:
        answer = self._admin.answer(Request(api_key, version, body))
        assert not isinstance(answer, str), f"{api_key.name} of the super user: {answer}"
        return answer


def batch(**fields: Any) -> bytes:
    """One record."""
    return bytes(build_batch([Record(0, _TIME_MS, b"k", b"v")], **fields))
