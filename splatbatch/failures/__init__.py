"""Diagnosis of failed attempts, the advice for each cause, and the retry policy. Pure."""
