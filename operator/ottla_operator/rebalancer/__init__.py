"""Decides where replicas should be, and which step moves them there.

Pure. `facts.fleet_values` has the values,
`planner` makes a plan of a fleet. Reading a fleet and carrying out a plan is not here.
"""
