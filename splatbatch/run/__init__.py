"""One composition of a night: what is trained, who hears of it, what follows."""
