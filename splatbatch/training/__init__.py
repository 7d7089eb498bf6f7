"""The built-in trainer of Gaussian splats, which runs in a process of its own; only this package imports torch.

Importing the package sets `PYTORCH_ALLOC_CONF`, unless set already. It also lets Python keep bytecode in the user's
cache folder if torch is installed without (see `splatbatch.bytecode.keep`).
"""

import os

from splatbatch import bytecode

# before torch is imported: expandable segments do not fragment memory as the number of Gaussians changes
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
bytecode.keep()
