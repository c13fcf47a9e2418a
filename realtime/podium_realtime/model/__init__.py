"""What is scheduled: networks as graphs of stages, their times by SM count, tasks with period and deadline."""
