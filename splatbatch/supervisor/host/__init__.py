"""What happened around the process of an attempt: kernel log, OOM killer, GPU samples."""
