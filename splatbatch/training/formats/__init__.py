"""What a splat has lost on its way through a format, on photographs that it was not trained on."""
