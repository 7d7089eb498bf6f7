"""Where else a batch is written down while it runs, through one protocol: Prometheus, MLflow."""

from splatbatch.monitor.sinks.mlflow_sink import MlflowSink
from splatbatch.monitor.sinks.sink import BUDGET_S, BatchOutcome, Sink, Sinks

__all__ = ["BUDGET_S", "BatchOutcome", "MlflowSink", "Sink", "Sinks"]
