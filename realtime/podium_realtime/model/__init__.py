"""Data model of the schedulers: networks of stages, execution-time profiles, periodic tasks and task set files."""
