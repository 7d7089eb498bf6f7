"""Evaluation of a merged scene: rendered block by block, compared with held-out photographs and across its seams."""
