"""The transaction coordinator (KIP-98): transactional ids, their transactions, and the markers that end them.

Pure: `states`, `decisions`, `machine`, `records`, `replay`, `marker_queues`. Around them `coordinator` and
`marker_sender`.
"""
