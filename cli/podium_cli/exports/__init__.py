"""Exports of a search to other tools: CSV, Parquet, TensorBoard, MLflow and W&B."""
