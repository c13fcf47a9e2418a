"""A simulated GPU with SM partitions: model, engine, the papers' scenarios, calibration, validation and plots."""
