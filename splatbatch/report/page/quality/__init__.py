"""How good splats are beyond PSNR, as the page shows it: figures with pictures, curve, maps, certificate."""
