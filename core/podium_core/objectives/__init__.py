"""Several objectives: the value of each for a trial, non-dominated sorting, and the Pareto front. Pure."""
