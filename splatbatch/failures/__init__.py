"""Diagnosis of failed attempts, the advice for each cause, and the retry policy; no file of an attempt is read here."""
