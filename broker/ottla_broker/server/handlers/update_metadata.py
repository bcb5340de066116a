"""UpdateMetadata (key 6, controller to broker): the brokers and partitions of the cluster.

Behaviour
    Replaces the list of live brokers, updates the partitions of the request and removes those whose leader is -2
    (their topic is being deleted). Type 2 (full) names every topic; others are deleted, and their offsets and
    configuration with them. A topic whose name is none is left out: names become directories and znodes.
    Followers look up their leaders' new endpoints.
Rights, in this order
    ClusterAction:Cluster (the cluster): the error of the whole answer.
Errors, in this order
    STALE_BROKER_EPOCH (the request is for an earlier incarnation of this broker), STALE_CONTROLLER_EPOCH (also over a
    connection that the controller has closed).
Versions
    1: endpoints. 2: rack. 3: listener names. 4: offline replicas. 5: partitions grouped by topic, broker epoch
    (KIP-380). 6: flexible. 7: topic ids (KIP-516). 8: type and isKRaftController (KIP-866).
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import Final

from ottla_broker.metadata.cache import PartitionMetadata
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.server.turns import RELEASED_PER_ELEMENT
from ottla_broker.storage.files.names import is_topic_name

logger = logging.getLogger("ottla.server")

_FREED_AT_ONCE: Final = 100


async def handle(services: Services, context: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Responds when the metadata is updated."""
    manager = services.replica_manager
    if await manager.fence.is_stale_broker_epoch(request.broker_epoch):
        return UpdateMetadataResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    if not manager.fence.accepts(request.controller_epoch, context.connection_number):
        return UpdateMetadataResponse(error_code=int(ErrorCode.STALE_CONTROLLER_EPOCH))
    await _leave_out_invalid_names(context, request)
    work = context.work
    replaced: list[PartitionMetadata] = []
    if work is None or not work.is_long:
        error, deleted = services.metadata.update(request, context.api_version)
    else:
        error, deleted, replaced = await services.metadata.update_in_turns(
            request,
            context.api_version,
            work.count,
            partial(manager.fence.accepts, request.controller_epoch, context.connection_number),
        )
    if error is ErrorCode.NONE:
        manager.on_metadata_changed()
        if deleted:
            services.group_coordinator.on_partitions_deleted(deleted)
            for topic in dict.fromkeys(partition.topic for partition in deleted):
                if topic not in services.metadata.topics:
                    services.dynamic_config.forget_topic(topic)
    while replaced:
        del replaced[-_FREED_AT_ONCE:]
        assert work is not None
        await work.count(_FREED_AT_ONCE // RELEASED_PER_ELEMENT)
    return UpdateMetadataResponse(error_code=int(error))


async def _leave_out_invalid_names(context: RequestContext, request: UpdateMetadataRequest) -> None:
    """Changes the request in place. No controller creates such a topic; who sends one is none."""
    invalid: set[str] = set()
    last = ""
    grouped = (state.topic_name for state in request.topic_states)
    ungrouped = (state.topic_name for state in request.ungrouped_partition_states)
    async for name in context.each(chain(grouped, ungrouped)):
        if name != last or not last:
            last = name
            if not is_topic_name(name):
                invalid.add(name)
    if not invalid:
        return
    logger.warning("UpdateMetadata of controller %d names no topics: %.200r", request.controller_id, sorted(invalid))
    request.topic_states = [state for state in request.topic_states if state.topic_name not in invalid]
    request.ungrouped_partition_states = [
        state for state in request.ungrouped_partition_states if state.topic_name not in invalid
    ]
