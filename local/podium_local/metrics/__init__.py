"""Sources of the metrics of trials on this machine; the readers are those of the core."""
