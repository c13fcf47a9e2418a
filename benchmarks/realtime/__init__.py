"""Real-time inference: SGPRS, DARIS and launch-ahead."""
