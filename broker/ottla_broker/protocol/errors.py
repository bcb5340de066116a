"""The error codes of the wire protocol: Kafka 3.9's names and numbers, with messages of our own.

Lives here: the closed list of codes and which of them are retriable. Not here: when each is sent; the definition of
each API lists its errors in the order of checking.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """An error code as responses carry it."""

    retriable: bool
    """Whether clients retry the same request."""
    message: str
    """One sentence for people, without the details of the case."""

    def __new__(cls, code: int, retriable: bool, message: str) -> ErrorCode:
        """One member: the number on the wire, whether clients retry, the sentence."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member of a number from the wire. KeyError for one that Kafka 3.9 does not have."""
        member = cls._value2member_map_[code]
        assert isinstance(member, ErrorCode)
        return member

    UNKNOWN_SERVER_ERROR = (
        -1,
        False,
        "The broker failed in a way that has no code of its own; its log says why.",
    )
    NONE = (0, False, "No error.")
    OFFSET_OUT_OF_RANGE = (1, False, "The offset is not one that the partition has.")
    CORRUPT_MESSAGE = (2, True, "A batch does not match its checksum, or its length or structure is wrong.")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "This broker has no such topic or partition.")
    INVALID_FETCH_SIZE = (4, False, "The requested fetch size is not valid.")
    LEADER_NOT_AVAILABLE = (5, True, "The partition has no leader at the moment.")
    NOT_LEADER_OR_FOLLOWER = (6, True, "This broker is not the leader, or not a replica, of the partition.")
    REQUEST_TIMED_OUT = (7, True, "The request was not completed within its time.")
    BROKER_NOT_AVAILABLE = (8, False, "The broker is not available.")
    REPLICA_NOT_AVAILABLE = (9, True, "The replica is not available for the partition.")
    MESSAGE_TOO_LARGE = (
        10,
        False,
        "The message or batch is larger than the topic accepts (max.message.bytes).",
    )
    STALE_CONTROLLER_EPOCH = (11, False, "The request comes from a controller that has been replaced.")
    OFFSET_METADATA_TOO_LARGE = (
        12,
        False,
        "The metadata of the committed offset is longer than offset.metadata.max.bytes.",
    )
    NETWORK_EXCEPTION = (13, True, "The connection broke before an answer came.")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "The coordinator is still loading its state.")
    COORDINATOR_NOT_AVAILABLE = (
        15,
        True,
        "There is no coordinator for this group or transaction at the moment.",
    )
    NOT_COORDINATOR = (16, True, "This broker is not the coordinator of the group or transaction.")
    INVALID_TOPIC_EXCEPTION = (17, False, "The topic's name is not valid, or the topic is internal.")
    RECORD_LIST_TOO_LARGE = (18, False, "The batch is larger than a segment of the log.")
    NOT_ENOUGH_REPLICAS = (
        19,
        True,
        "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were written, but fewer replicas are in sync than min.insync.replicas asks for.",
    )
    INVALID_REQUIRED_ACKS = (21, False, "acks is none of 0, 1 and -1.")
    ILLEGAL_GENERATION = (22, False, "The generation is not the current one of the group.")
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "The member's protocol type or protocols have nothing in common with those of the group.",
    )
    INVALID_GROUP_ID = (24, False, "The group id is not valid.")
    UNKNOWN_MEMBER_ID = (25, False, "The group has no member of this id.")
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = (27, False, "The group is rebalancing: join again.")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "The committed offsets do not fit in one batch.")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "Topic authorization failed.")
    GROUP_AUTHORIZATION_FAILED = (30, False, "Group authorization failed.")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "Cluster authorization failed.")
    INVALID_TIMESTAMP = (32, False, "The record's timestamp is outside the range that the topic accepts.")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "The SASL mechanism is not offered by this listener.")
    ILLEGAL_SASL_STATE = (34, False, "The request does not fit the state of the SASL handshake.")
    UNSUPPORTED_VERSION = (35, False, "The broker does not speak this version of the API.")
    TOPIC_ALREADY_EXISTS = (36, False, "A topic of this name exists.")
    INVALID_PARTITIONS = (37, False, "The number of partitions is not valid.")
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = (39, False, "The replica assignment is not valid.")
    INVALID_CONFIG = (40, False, "The configuration is not valid.")
    NOT_CONTROLLER = (41, True, "This broker is not the controller.")
    INVALID_REQUEST = (
        42,
        False,
        "The request contradicts itself or a field has a value that is not allowed.",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, False, "The message format does not support this.")
    POLICY_VIOLATION = (44, False, "A policy of the cluster refuses the request.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False, "The sequence number of the producer leaves a gap.")
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "The batch has been written before.")
    INVALID_PRODUCER_EPOCH = (47, False, "The producer has been replaced by one with a newer epoch.")
    INVALID_TXN_STATE = (48, False, "The transaction is in a state that does not allow this.")
    INVALID_PRODUCER_ID_MAPPING = (49, False, "The producer id does not belong to the transactional id.")
    INVALID_TRANSACTION_TIMEOUT = (50, False, "The transaction timeout is above transaction.max.timeout.ms.")
    CONCURRENT_TRANSACTIONS = (51, True, "Another operation on the transaction is still running.")
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        False,
        "The marker comes from a transaction coordinator that has been replaced.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "Transactional Id authorization failed.")
    SECURITY_DISABLED = (54, False, "Security is not switched on.")
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "This part was not attempted because another part of the request failed.",
    )
    KAFKA_STORAGE_ERROR = (56, True, "The disk of the partition failed.")
    LOG_DIR_NOT_FOUND = (57, False, "The log directory is not one of the broker's, or is offline.")
    SASL_AUTHENTICATION_FAILED = (58, False, "Authentication failed.")
    UNKNOWN_PRODUCER_ID = (
        59,
        False,
        "The broker knows nothing of this producer id: its records have been deleted.",
    )
    REASSIGNMENT_IN_PROGRESS = (60, False, "A reassignment of the partition is running.")
    DELEGATION_TOKEN_AUTH_DISABLED = (61, False, "Delegation tokens are not switched on.")
    DELEGATION_TOKEN_NOT_FOUND = (62, False, "There is no such delegation token.")
    DELEGATION_TOKEN_OWNER_MISMATCH = (63, False, "The delegation token belongs to another user.")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be used over this connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, False, "Delegation Token authorization failed.")
    DELEGATION_TOKEN_EXPIRED = (66, False, "The delegation token has expired.")
    INVALID_PRINCIPAL_TYPE = (67, False, "The type of principal is not supported.")
    NON_EMPTY_GROUP = (68, False, "The group has members.")
    GROUP_ID_NOT_FOUND = (69, False, "There is no group of this id.")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "The fetch session is unknown.")
    INVALID_FETCH_SESSION_EPOCH = (71, True, "The epoch of the fetch session is not the expected one.")
    LISTENER_NOT_FOUND = (
        72,
        True,
        "The partition's leader has no listener of the name that the request came through.",
    )
    TOPIC_DELETION_DISABLED = (73, False, "Deleting topics is switched off (delete.topic.enable).")
    FENCED_LEADER_EPOCH = (74, True, "The request carries an older leader epoch than the broker's.")
    UNKNOWN_LEADER_EPOCH = (75, True, "The request carries a newer leader epoch than the broker's.")
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The client's version of the API cannot carry this compression.",
    )
    STALE_BROKER_EPOCH = (
        77,
        False,
        "The request carries the epoch of an earlier registration of the broker.",
    )
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "The new leader's high watermark has not caught up yet: offsets cannot be looked up.",
    )
    MEMBER_ID_REQUIRED = (79, False, "The member must join again with the member id of this answer.")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "The preferred leader is not available.")
    GROUP_MAX_SIZE_REACHED = (81, False, "The group has group.max.size members.")
    FENCED_INSTANCE_ID = (82, False, "Another member has replaced this one under the group instance id.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "No replica that may become leader is available.")
    ELECTION_NOT_NEEDED = (84, True, "The leader is already the one asked for.")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "No reassignment of the partition is running.")
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        False,
        "The group is subscribed to the topic: its offsets cannot be deleted.",
    )
    INVALID_RECORD = (87, False, "A record or batch breaks a rule of the format or of the topic.")
    UNSTABLE_OFFSET_COMMIT = (88, True, "An open transaction may still change these offsets.")
    THROTTLING_QUOTA_EXCEEDED = (89, True, "The quota for this kind of request is used up.")
    PRODUCER_FENCED = (90, False, "A newer producer with the same transactional id has fenced this one.")
    RESOURCE_NOT_FOUND = (91, False, "There is no such resource.")
    DUPLICATE_RESOURCE = (92, False, "The resource is named more than once, or exists.")
    UNACCEPTABLE_CREDENTIAL = (93, False, "The credential does not meet the requirements.")
    INCONSISTENT_VOTER_SET = (94, False, "The voter sets of sender and receiver differ.")
    INVALID_UPDATE_VERSION = (95, False, "The update carries a version that is not the current one.")
    FEATURE_UPDATE_FAILED = (96, False, "The feature could not be updated.")
    PRINCIPAL_DESERIALIZATION_FAILURE = (97, False, "The principal of the forwarded request cannot be read.")
    SNAPSHOT_NOT_FOUND = (98, False, "There is no such snapshot.")
    POSITION_OUT_OF_RANGE = (99, False, "The position is outside the snapshot.")
    UNKNOWN_TOPIC_ID = (100, True, "This broker knows no topic of this id.")
    DUPLICATE_BROKER_REGISTRATION = (101, False, "A broker of this id is registered and alive.")
    BROKER_ID_NOT_REGISTERED = (102, False, "No broker of this id is registered.")
    INCONSISTENT_TOPIC_ID = (103, True, "The topic's id is not the one that the log has.")
    INCONSISTENT_CLUSTER_ID = (104, False, "The request is meant for another cluster.")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "There is no such transactional id.")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "A topic id of the fetch session does not fit.")
    INELIGIBLE_REPLICA = (
        107,
        False,
        "The replica may not join the in-sync set: it is shutting down, fenced or an earlier incarnation.",
    )
    NEW_LEADER_ELECTED = (108, False, "A new leader was elected while the partition was changed.")
    OFFSET_MOVED_TO_TIERED_STORAGE = (109, False, "The offset is in tiered storage.")
    FENCED_MEMBER_EPOCH = (110, False, "The member epoch has been replaced.")
    UNRELEASED_INSTANCE_ID = (111, False, "The group instance id is still held by another member.")
    UNSUPPORTED_ASSIGNOR = (112, False, "None of the offered assignors is supported.")
    STALE_MEMBER_EPOCH = (113, False, "The member epoch is older than the group's.")
    MISMATCHED_ENDPOINT_TYPE = (114, False, "The request was sent to an endpoint of another kind.")
    UNSUPPORTED_ENDPOINT_TYPE = (115, False, "This kind of endpoint is not supported.")
    UNKNOWN_CONTROLLER_ID = (116, False, "There is no controller of this id.")
    UNKNOWN_SUBSCRIPTION_ID = (117, False, "The telemetry subscription is unknown or outdated.")
    TELEMETRY_TOO_LARGE = (118, False, "The telemetry is larger than the broker accepts.")
    INVALID_REGISTRATION = (119, False, "The registration of the controller is not valid.")
    TRANSACTION_ABORTABLE = (
        120,
        False,
        "The transaction has to be aborted; the producer can continue afterwards.",
    )
    INVALID_RECORD_STATE = (121, False, "The record is in a state that does not allow this.")
    SHARE_SESSION_NOT_FOUND = (122, True, "The share session is unknown.")
    INVALID_SHARE_SESSION_EPOCH = (123, True, "The epoch of the share session is not the expected one.")
    FENCED_STATE_EPOCH = (124, False, "The state epoch of the share partition has been replaced.")
    INVALID_VOTER_KEY = (125, False, "The voter's key does not match the receiver's.")
    DUPLICATE_VOTER = (126, False, "The voter is already in the voter set.")
    VOTER_NOT_FOUND = (127, False, "The voter is not in the voter set.")
    INVALID_REGULAR_EXPRESSION = (128, False, "The regular expression is not valid.")


def error_name(code: int) -> str:
    """The name of a number from the wire; its number where Kafka 3.9 does not have it."""
    try:
        return ErrorCode.of(code).name
    except KeyError:
        return f"error {code}"


class KafkaError(Exception):
    """An operation refused for a reason that has an error code.

    Args:
        code: what the client gets.
        message: the details, for the response's error message or the log; the code's own sentence by default.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.message)
        self.code = code
        self.message = message or code.message
