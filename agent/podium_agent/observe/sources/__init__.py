"""Sources of a trial's metrics: its log, a file, event files, a page that it serves, or values that it sends."""
