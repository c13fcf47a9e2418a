"""Log files of the trials on this node."""
