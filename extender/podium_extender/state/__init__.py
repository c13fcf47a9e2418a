"""The state of nodes and pods that the extender keeps in memory by watches."""
