"""What is to be inspected of accepted splats, and what a certificate says of them."""
