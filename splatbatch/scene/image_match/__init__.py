"""Checks whether photographs match where a model puts their points; used by the audit and by camera fixes."""
