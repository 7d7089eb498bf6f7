"""Whether this machine can train: facts are gathered first, then pure functions judge them, each with a remedy."""

from splatbatch.doctor.finding import Finding, worst_exit_code

__all__ = ["Finding", "worst_exit_code"]
