"""What stands in the JSON files of an output folder: plain values, read without trust."""
