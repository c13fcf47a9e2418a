"""What the extender knows of nodes and pods, kept in memory by watches."""
