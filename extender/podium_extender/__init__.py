"""The scheduler extender: tells kube-scheduler which nodes may take a trial (filter), which is best (prioritize), and
who leaves for a more important pod (preempt).
"""
