"""From the log files of the trials on this node to learning curves."""
