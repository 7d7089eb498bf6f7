"""An accepted splat inspected in this process: figures beside PSNR, each with a limit, a subject and advice."""
