"""What a report says of the scene: as it was merged, from above, and the colours of its photographs."""
