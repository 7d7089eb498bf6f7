"""One colour over a scene: how bright, and how tinted, each photograph is."""
