"""What the active controller does: one module for each kind of event or request.

Every act has the same order: decide (`controller.decisions`), write under the fence (`controller.store`), record in the
context what has been written, and send the brokers one batch of requests. Not here: the queue that runs one act after
the other (`controller.controller`).
"""
