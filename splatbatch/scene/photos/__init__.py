"""Photographs and masks on disk: folders, headers, sizes, pixels, undistortion."""
