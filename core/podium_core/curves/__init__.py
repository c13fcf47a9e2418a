"""Learning curves: reading, thinning, comparison at equal training, and prediction."""
