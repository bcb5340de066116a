"""The log directories of a broker (JBOD): their states, what lies in them, and all logs over them."""
