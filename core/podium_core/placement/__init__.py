"""Which node suits a trial: pure functions of telemetry, used by the extender, the simulator and what-if."""
