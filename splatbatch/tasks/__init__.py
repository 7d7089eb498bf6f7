"""WHAT to do: a batch, its tasks, what each depends on, how it stands, and how long it will take."""
