"""What is tried and not yet decided: named in SPLATBATCH_TRIAL, for one measurement."""

import os

ON = frozenset(os.environ.get("SPLATBATCH_TRIAL", "").split(","))
