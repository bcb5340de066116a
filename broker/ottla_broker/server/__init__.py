"""The running broker.

broker, lifecycle   the broker: its states, the steps of its start and stop, what each failure does
assembly            makes and connects the parts (composition root)
edge                connections, listeners, request scheduling, dispatch, HTTP endpoints
handlers            one module per API; `handler_api` is what a handler gets
peers               other brokers, the active controller and the coordination store
"""
