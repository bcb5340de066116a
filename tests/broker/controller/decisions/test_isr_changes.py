"""AlterPartition: each refusal has its code, and they are checked in Kafka's order."""

import pytest

from ottla_broker.controller.decisions.isr_changes import IsrChange, decide_isr_change
from ottla_broker.controller.values import LeaderAndIsr, LeaderRecoveryState
from ottla_broker.protocol.errors import ErrorCode

CURRENT = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=10, controller_epoch=1)
EPOCHS = {1: 100, 2: 200, 3: 300}


def decide(change, current=CURRENT, online=frozenset({1, 2, 3}), version=3):
    return decide_isr_change(change, current, replicas=(1, 2, 3), online=online, broker_epochs=EPOCHS, version=version)


def asks(broker=1, leader_epoch=5, partition_epoch=10, isr=((1, 100), (2, 200), (3, 300)), recovery=0):
    return IsrChange(broker, leader_epoch, partition_epoch, isr, recovery)


def test_a_fitting_change_is_written_without_a_new_leader_epoch() -> None:
    decision = decide(asks())
    assert decision.error is ErrorCode.NONE
    assert decision.write.isr == (1, 2, 3) and decision.write.leader_epoch == 5


def test_a_repeated_request_is_answered_with_the_state_and_not_written() -> None:
    decision = decide(asks(isr=((1, 100), (2, 200)), partition_epoch=9))
    assert decision.error is ErrorCode.NONE and decision.write is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (asks(partition_epoch=11), ErrorCode.NOT_CONTROLLER),
        (asks(leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (asks(leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (asks(leader_epoch=4, partition_epoch=9), ErrorCode.FENCED_LEADER_EPOCH),
        (asks(broker=2), ErrorCode.INVALID_REQUEST),
        (asks(partition_epoch=9), ErrorCode.INVALID_UPDATE_VERSION),
        (asks(isr=()), ErrorCode.INVALID_REQUEST),
        (asks(isr=((2, 200),)), ErrorCode.INVALID_REQUEST),
        (asks(isr=((1, 100), (7, -1))), ErrorCode.INVALID_REQUEST),
        (asks(isr=((1, 100), (1, 100))), ErrorCode.INVALID_REQUEST),
        (asks(recovery=1), ErrorCode.INVALID_REQUEST),
        (asks(recovery=9), ErrorCode.INVALID_REQUEST),
        (asks(isr=((1, 100), (3, 299))), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_refusals(change, code) -> None:
    decision = decide(change)
    assert decision.error is code and decision.write is None and decision.reason


def test_an_offline_member_is_ineligible_and_older_versions_are_told_otherwise() -> None:
    assert decide(asks(), online=frozenset({1, 2})).error is ErrorCode.INELIGIBLE_REPLICA
    assert decide(asks(), online=frozenset({1, 2}), version=1).error is ErrorCode.OPERATION_NOT_ATTEMPTED


def test_an_unknown_partition() -> None:
    assert decide(asks(), current=None).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_recovering_leader_first_recovers_then_takes_followers_in() -> None:
    recovering = LeaderAndIsr(1, 5, (1,), 10, 1, LeaderRecoveryState.RECOVERING)
    assert decide(asks(recovery=1), current=recovering).error is ErrorCode.INVALID_REQUEST
    recovered = decide(asks(isr=((1, 100),)), current=recovering)
    assert recovered.write.recovery_state is LeaderRecoveryState.RECOVERED
