"""Reports on a running batch: console, table, history, Prometheus, MLflow, notifications."""
