"""The running broker.

broker, lifecycle   the broker: its states, the steps of its start and stop, what each failure does
phases              what an event means before the broker serves, and while it does
assembly            makes and connects the parts (composition root)
edge                connections, listeners, request scheduling, dispatch, HTTP endpoints
handlers            one module per API; `handler_api` is what a handler gets
peers               other brokers, the active controller among them
store               what a broker keeps in the coordination store, and reads from there
log_dir_recovery    replicas of a new or emptied log directory, failed directories, power failures
"""
