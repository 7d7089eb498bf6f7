"""The causes of failures, in words."""
