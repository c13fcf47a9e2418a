"""Status of the node and its trials, as the agent writes it."""
