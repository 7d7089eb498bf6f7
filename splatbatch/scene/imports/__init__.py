"""Imports reconstructions of other programs as COLMAP models; photographs are linked, and every change is recorded."""
