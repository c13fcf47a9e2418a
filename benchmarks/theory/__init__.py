"""The optimisers against optima, formulas and one another."""
