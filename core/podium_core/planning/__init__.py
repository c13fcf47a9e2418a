"""From a snapshot to a plan: shares, creation, order of each GPU, completion, ETA. Pure; above policies, placement
and curves.
"""
