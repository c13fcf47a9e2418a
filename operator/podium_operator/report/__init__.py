"""Status of jobs and trials, as the operator writes it."""
