"""Where else a batch is written down while it runs, through one protocol: Prometheus, MLflow."""

from splatbatch.monitor.sinks.mlflow_sink import MlflowSink
from splatbatch.monitor.sinks.sink import Sink, Sinks

__all__ = ["MlflowSink", "Sink", "Sinks"]
