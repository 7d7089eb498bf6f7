"""COLMAP models: read and written without trust, text and binary."""
