"""Which resources a change of configuration may name."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.server.handlers.shared.config_changes import check_broker


@pytest.mark.parametrize("name", ["1_0", " 10", "x", "1" * 5000])
def test_a_broker_is_named_by_a_whole_number(name: str) -> None:
    check_broker("10", 10)
    with pytest.raises(KafkaError, match="Broker id must be an integer") as refused:
        check_broker(name, 10)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
