"""A run of a batch, from deciding what to train to the report; also the work behind other commands, one module each."""
