"""How a training is doing: progress.jsonl, health rules, TensorBoard."""
