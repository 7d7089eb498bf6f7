"""The output folder: its layout, records, ledger, locks and results."""
