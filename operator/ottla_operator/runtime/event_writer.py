"""Writes Events of our custom resources, and a log line for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla_operator.api.objects import Obj
from ottla_operator.ports import ApiError, KubernetesApi


async def emit_events(api: KubernetesApi, log: logging.Logger, transitions: Sequence[Obj]) -> None:
    """Creates the Events. One that cannot be written is logged and left out."""
    for event in transitions:
        about = event["involvedObject"]
        log.info("%s %s: %s: %s", about["kind"], about["name"], event["reason"], event["message"])
        try:
            await api.create(event)
        except ApiError as error:
            log.warning("an Event could not be written: %s", error)
