"""What each way to run a batch loses: the kinds of failure, and the tools under them."""
