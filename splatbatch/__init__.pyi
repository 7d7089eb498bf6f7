"""The types of the Python API."""

from splatbatch.run.api import (
    Batch as Batch,
)
from splatbatch.run.api import (
    InspectOptions as InspectOptions,
)
from splatbatch.run.api import (
    TrainOptions as TrainOptions,
)
from splatbatch.run.api import (
    accept as accept,
)
from splatbatch.run.api import (
    cancel as cancel,
)
from splatbatch.run.api import (
    evaluate as evaluate,
)
from splatbatch.run.api import (
    gaussians as gaussians,
)
from splatbatch.run.api import (
    inspect as inspect,
)
from splatbatch.run.api import (
    merge as merge,
)
from splatbatch.run.api import (
    open_batch as open_batch,
)
from splatbatch.run.api import (
    plan as plan,
)
from splatbatch.run.api import (
    publish_splats as publish_splats,
)
from splatbatch.run.api import (
    results as results,
)
from splatbatch.run.api import (
    status as status,
)
from splatbatch.run.api import (
    train as train,
)
from splatbatch.run.api import (
    write_report as write_report,
)

__version__: str
