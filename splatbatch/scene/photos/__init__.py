"""Photographs and masks on disk: headers, sizes, folders."""
