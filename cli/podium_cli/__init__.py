"""The `podium` command: reads the objects of a cluster, shows them, and writes intent. It decides nothing."""
