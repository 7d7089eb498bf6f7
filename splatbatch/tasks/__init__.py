"""WHAT to do: a batch, its tasks, what each depends on, its state, and how long it will take."""
