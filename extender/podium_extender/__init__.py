"""The scheduler extender: which nodes can run a trial (filter), which is best (prioritize), and which trials end for a
more important pod (preempt).
"""
