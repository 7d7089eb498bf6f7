"""Commands about a single patch."""
