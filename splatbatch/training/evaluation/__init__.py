"""How good the splat is, on photographs it has never seen."""
