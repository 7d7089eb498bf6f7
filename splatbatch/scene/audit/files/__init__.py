"""Files around a model: what lies beside it, its masks, and every photograph decoded."""
