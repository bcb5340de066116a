"""The controller: elects the leaders of partitions and sends every broker what it has to know.

One broker of the fleet is the active controller: the one whose ephemeral znode `/controller` exists. It watches brokers
and topics in the coordination store, decides, writes each decision under the fence of its controller epoch, and sends
the brokers, itself included, LeaderAndIsr, UpdateMetadata and StopReplica.

Layers, from the top:

    controller             the queue of events, the controller election, what the handlers call
    active                 the active controller of one controller epoch: assembles the acts
    acts/                  what it does for each kind of event or request
    controller_epoch_parts what the acts share that write to the coordination store
    store, control_requests, controller_election, controller_metrics, channels_port
    decisions/             pure rules with reasons
    context                what the active controller knows
    partition_states, replica_states, values
"""
