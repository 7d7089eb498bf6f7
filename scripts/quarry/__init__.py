"""The parts of `scripts/make_example`: a quarry that exists only in numpy, photographed and reconstructed."""
