"""Where else a batch is written down while it runs, through one protocol: Prometheus, MLflow."""

from splatbatch.monitor.sinks.mlflow_sink import MlflowSink
from splatbatch.monitor.sinks.sink import BUDGET_S, End, Sink, Sinks

__all__ = ["BUDGET_S", "End", "MlflowSink", "Sink", "Sinks"]
