"""The long proof of the operator: rolls, scaling, lost nodes and disks under load, and no record lost.

    load        the pod whose producers, groups and copier run through it all, and the history that it leaves
    fleet       the fleet that is operated on
    watch       who is down in which step of a roll
    traffic     what a history and a watch add up to, pure
    rolls, scaling, pools, hardware, quorum, deletion    the scenarios, a function each
    report      a table and a JSON file

`python -m e2e --long` runs it; see docs/internals/end-to-end-tests.md.
"""
