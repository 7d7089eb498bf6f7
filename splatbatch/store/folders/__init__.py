"""What lies in the output folder for one patch, and for the whole scene."""
