"""Learning curves: thinning, what counts as better, how far a trial has converged. Pure; knows only `domain`."""
