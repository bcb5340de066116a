"""What an answer of the controller's own broker completes, and what it does not."""

import asyncio

from ottla_broker.controller.acts.metadata_waits import MetadataWaits


async def test_an_answer_to_a_request_from_before_the_decision_completes_nothing() -> None:
    waits, decided, done = MetadataWaits(), set(), asyncio.get_running_loop().create_future()
    waits.sent({"t"})
    waits.add("t", lambda: "t" in decided, done)
    decided.add("t")  # the request that says so is not sent yet
    waits.answered()
    assert not done.done()
    waits.sent({"other"})
    waits.sent({"t"})
    waits.answered()
    assert not done.done()
    waits.answered()
    assert done.done()


async def test_what_was_decided_and_sent_before_is_complete_with_its_answer() -> None:
    waits, done = MetadataWaits(), asyncio.get_running_loop().create_future()
    waits.sent({"t"})
    waits.add("t", lambda: True, done)
    assert not done.done()
    waits.answered()
    assert done.done()
