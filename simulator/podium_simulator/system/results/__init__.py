"""What a simulation ends with: outcome, comparison of policies, fairness, forecast."""
