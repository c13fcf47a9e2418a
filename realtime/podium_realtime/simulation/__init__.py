"""A simulated GPU with SM partitions, fed by published figures; the engine, the paper's scenarios, fit and plots."""
