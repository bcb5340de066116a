"""Carries out what is decided about log directories: cordons them, and moves replicas out of them."""

from __future__ import annotations

import logging
from collections import defaultdict

from ottla_operator.effects.ports import KafkaAdmin, KafkaUnavailable
from ottla_operator.planning.disk_drains import CORDONED_LOG_DIRS, DrainDecision


async def write_log_dirs(client: KafkaAdmin | None, wanted: DrainDecision, log: logging.Logger) -> None:
    """Asks the brokers. What is refused or not answered is decided again in the next reconciliation."""
    if client is None:
        return
    try:
        for broker, paths in wanted.cordons.items():
            log.info("broker %d: %s is %s", broker, CORDONED_LOG_DIRS, ",".join(paths) or "deleted")
            refused = await client.set_broker_config(broker, CORDONED_LOG_DIRS, ",".join(paths) or None)
            if refused:
                log.warning("broker %d refuses %s: %s", broker, CORDONED_LOG_DIRS, refused)
        moves: dict[int, dict[tuple[str, int], str]] = defaultdict(dict)
        for move in wanted.moves:
            moves[move.broker_id][move.topic, move.index] = move.log_dir
        for broker, targets in moves.items():
            log.info("broker %d: %d replicas move to other log directories", broker, len(targets))
            for (topic, index), error in (await client.move_replicas(broker, targets)).items():
                log.warning("broker %d does not move %s-%d: %s", broker, topic, index, error)
    except KafkaUnavailable as error:
        log.info("no change of log directories: %s", error)
