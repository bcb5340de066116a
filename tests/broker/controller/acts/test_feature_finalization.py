"""Finalized features and the znode that has them, with connections that break and programs that write it too."""

import pytest

from ottla_broker.config import features
from ottla_broker.controller.decisions.feature_updates import FeatureUpdate, UpgradeType
from ottla_broker.coordination import znodes
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.controller.fleet import AnswerLost


async def _controller(fleet, coordination_of=lambda session: session):
    fleet.features = features.registered(features.SUPPORTED)
    for broker in range(3):
        await fleet.register(broker)
    coordination = coordination_of(fleet.brokers[0].session)
    controller, _ = await fleet.start_controller(0, coordination)
    return controller, coordination


async def _finalize(controller, level):
    update = FeatureUpdate(features.TRANSACTION_VERSION, level, UpgradeType.UPGRADE)
    return await controller.update_features([update], validate_only=False, is_atomic=False)


@pytest.mark.parametrize("is_new", [True, False], ids=["created", "changed"])
async def test_an_update_whose_write_lost_its_answer_has_been_made(fleet, is_new) -> None:
    controller, coordination = await _controller(fleet, lambda session: AnswerLost(session, znodes.FEATURE))
    if not is_new:
        assert (await _finalize(controller, 1)).epoch == 0
    coordination.armed = True
    results = await _finalize(controller, 2)
    assert not coordination.armed and results.errors == {features.TRANSACTION_VERSION: None}
    data, stat = await fleet.tool.get(znodes.FEATURE)
    assert znodes.Features.decode(data).max_version_levels == {features.TRANSACTION_VERSION: 2}
    assert results.epoch == stat.version == (0 if is_new else 1)


class _WrittenBefore:
    """A session before whose write another program changes, creates or deletes /feature."""

    def __init__(self, inner, change) -> None:
        self._inner = inner
        self._change = change

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def multi(self, operations):
        if any(operation.path == znodes.FEATURE for operation in operations):
            self._change(self._inner)
        return self._inner.multi(operations)


OTHER = znodes.Features(True, {features.TRANSACTION_VERSION: 1, "x": 1}).encode()


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (None, lambda session: session.create(znodes.FEATURE, OTHER)),
        (znodes.Features(True, {}), lambda session: session.set(znodes.FEATURE, OTHER)),
        (znodes.Features(True, {}), lambda session: session.set(znodes.FEATURE, b"not json")),
        (znodes.Features(True, {}), lambda session: session.delete(znodes.FEATURE)),
    ],
    ids=["created", "changed", "unreadable", "deleted"],
)
async def test_an_update_is_refused_when_another_program_has_written_meanwhile(fleet, before, change) -> None:
    if before is not None:
        await fleet.tool.create(znodes.FEATURE, before.encode())
    controller, _ = await _controller(fleet, lambda session: _WrittenBefore(session, change))
    results = await _finalize(controller, 2)
    assert results.errors[features.TRANSACTION_VERSION].code is ErrorCode.FEATURE_UPDATE_FAILED
    assert controller.is_active
