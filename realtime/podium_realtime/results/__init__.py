"""Results of a run, simulated or real: the execution trace, deadline metrics, and invariants that must hold."""
