"""The cameras that Metashape exports as XML."""
