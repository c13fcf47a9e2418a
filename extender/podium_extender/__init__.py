"""The scheduler extender: tells kube-scheduler which nodes may take a trial (filter) and which is best (prioritize)."""
