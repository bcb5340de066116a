"""Real parts for tests, ours and users'. Nothing here is a mock, and the broker itself imports nothing of it."""
