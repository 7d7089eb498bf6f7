"""Operations on the whole scene: merging its patches, cleaning and evaluation."""
