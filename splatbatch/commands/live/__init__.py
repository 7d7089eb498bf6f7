"""`serve`: the report in the browser while a batch runs."""
