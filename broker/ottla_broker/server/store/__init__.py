"""What a broker keeps in the coordination store, and what it reads from there: registration, dynamic values, quotas."""
