"""Photographs and masks on disk: their folders, headers, pixels, and undistortion."""
