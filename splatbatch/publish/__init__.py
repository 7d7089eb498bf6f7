"""What came out, for everybody else: files that viewers open, each opened again before it is called done."""
