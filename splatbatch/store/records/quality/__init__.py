"""What is said of a splat beside its PSNR: inspection.json and certificate.json."""
