"""Local scheduling: which trial runs on each GPU of this node, and the actions that bring this about."""
