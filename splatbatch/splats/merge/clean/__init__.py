"""What cleaning takes out of a merged splat: what nothing shows, and what the photographs do not bear out."""
