"""While a batch runs: console, table, history, Prometheus, notifications."""
