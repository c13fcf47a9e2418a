"""What every component does at its start and beside its work: settings, logs, health."""
