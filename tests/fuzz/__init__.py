"""Requests that no decent client sends, to one broker of ours on the simulated ports: thousands a minute, by the seed.

`python -m tests.fuzz --cases 10000 --seed 1` draws frames of every listed API in every version from the wire
definitions (`drawing`, `record_data`), damages most of them (`mutations`) and sends them (`rounds`). A round is one
broker and 500 cases; its seed is all that a replay needs. What is checked after each case:

- the broker answers every whole request or closes its connection, within the time that the request itself asks for;
- an answer is readable by its definition and says nowhere UNKNOWN_SERVER_ERROR;
- no exception and no error reaches the broker's log, no task fails unheard, the broker does not halt;
- no request computes for long or takes much memory;

and after every few cases, that a produce and a fetch on a topic of their own succeed. At the end of a round nothing is
left of the requests: no connection, no task, no open file of a log that is gone.
"""
