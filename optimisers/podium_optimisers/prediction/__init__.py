"""What history says about jobs to come: durations (for predicted-SJF) and arrivals (Holt-Winters). See
docs/optimisers-preemption.md.
"""
