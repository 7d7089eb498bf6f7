"""What shows that figures are right: a picture of each, and what leaving photographs out brings."""
