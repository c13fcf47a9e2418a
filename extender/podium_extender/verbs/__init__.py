"""The extender's verbs: filter, prioritize and preempt."""
