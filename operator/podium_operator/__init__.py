"""The operator: accepts jobs (kopf), and keeps one cycle going: mirror the cluster, plan with the core, apply."""
