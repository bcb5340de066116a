"""What the active controller decides, as pure functions of values: each result carries its reason.

Not here: reading the coordination store, writing to it and sending requests (`controller.acts`), what the controller
knows (`controller.context`).
"""
