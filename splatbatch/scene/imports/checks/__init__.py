"""A capture held against its photographs: sizes, views, matches; and points that only photographs can give."""
