"""Photographs and masks on disk: folders, headers, pixels, undistortion."""
