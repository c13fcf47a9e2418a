"""`podium doctor`: facts of a cluster, the checks that judge them, and the table of all checks."""
