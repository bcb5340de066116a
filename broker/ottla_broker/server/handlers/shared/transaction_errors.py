"""Error codes of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn by the version of the request."""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode

_PRODUCER_FENCED_VERSION = 2


def error_code(error: ErrorCode, api_version: int) -> int:
    """Producers before KIP-588 know INVALID_PRODUCER_EPOCH alone.

    >>> error_code(ErrorCode.PRODUCER_FENCED, 1), error_code(ErrorCode.PRODUCER_FENCED, 2)
    (47, 90)
    """
    if error is ErrorCode.PRODUCER_FENCED and api_version < _PRODUCER_FENCED_VERSION:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(error)
