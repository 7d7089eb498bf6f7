"""What a result depends on, as hashes: settings, model, photographs and masks."""
