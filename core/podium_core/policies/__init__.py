"""Who of a job's trials should have a GPU first. Pure functions of the snapshot; knows `curves` and `domain`."""
