"""What a split leaves on the disk: folders of patches, links to what they share, a picture of the plan."""
