"""Checks whether photographs look alike where a model puts its points; used by the audit and by camera fixes."""
