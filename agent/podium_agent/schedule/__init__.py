"""Which trial runs on each GPU of the node, and the steps that make it so."""
