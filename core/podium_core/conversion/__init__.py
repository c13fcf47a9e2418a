"""Convert searches of Katib, W&B and Kubeflow into HyperParamJobs. Pure.

Tables hold what corresponds to what. Every field of a source is mapped, or it is refused by name. Where the meaning
changes, a note says so. `convert` is the entry.
"""
