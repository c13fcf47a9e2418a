"""HyperParamJobs: kopf handlers, acceptance, finalizers and events."""
