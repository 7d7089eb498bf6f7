"""Evaluation of a splat on held-out photographs: PSNR, SSIM and LPIPS, early stopping, and pictures for the report."""
