"""The scenario operator: 10 000 KafkaTopics on a real API server and a fleet on this machine.

    measurement       brings everything up, measures, ends everything; needs no root
    operator_process  the operator as it runs in a pod, but for the addresses of the brokers
    scenario          the rows of the report of `python -m bench`
    page              docs/reference/scale.md
    roll              its section on a roll of a fleet, measured by the long end-to-end run

There is no counterpart to compare with.
"""
