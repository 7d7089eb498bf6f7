"""Photographs and their cameras: decoded, masked, sized, exposed, handed to the steps in time."""
