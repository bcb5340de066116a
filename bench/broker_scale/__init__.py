"""What grows with a broker: how long its event loop is busy at a stretch with 10 000 partitions, or 10 000 connections.

    broker_process  `ottla broker run` that writes down the long turns of its loop
    long_turns      the loop's poll that measures turns, and what was run in them
    scale_steps     two brokers with 10 000 partitions, one broker with 10 000 connections, and what is asked of them

Everything that a broker does runs on one loop, and whatever else comes waits until a turn of it is over.
"""
