"""Known failures of what runs the training as a job: Slurm, SageMaker, Kubernetes, torchrun, Docker."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

JOBS = (
    Row(
        "time_limit",
        "degrade",
        "The time limit of the job was hit: give it more time (limits.wall_s, sbatch --time), or lower"
        " training.max_steps.",
        Words(
            r"DUE TO TIME LIMIT|walltime \d+ exceeded limit|job killed: walltime|exceeded (the )?(wall|time) ?limit",
            r"(reached|exceed(ed|s|ing))[^\n]{0,30}\b(run ?|wall ?)?time limit|\bTimeoutExpired\b",
            r"TERM_RUNLIMIT|timeout: sending signal|State[ =:]+TIMEOUT\b",
            r"MaxRuntimeExceeded|exceeded MaxRuntimeInSeconds",
            r"(?<!exceptions\.)\bDeadlineExceeded\b|activeDeadlineSeconds",
        ),
        scope="end",
    ),
    Row(
        "interrupted",
        "retry",
        "The scheduler or the machine took the job away: run again.",
        Words(
            r"DUE TO (PREEMPTION|NODE FAILURE|\w+ REQUEUE)|\bPREEMPTED\b|NODE_FAIL\b|was requeued|job requeue",
            r"error: Node failure on|\bTERM_(PREEMPT|OWNER|ADMIN)\b",
            r"SignalException: Process \d+ got signal|(Received|caught|got)[^\n]{0,20} (SIGTERM|SIGHUP|signal:? 15)",
            r"spot[^\n]{0,30} (interruption|termination|interrupted|reclaimed)|Received \d+ death signal",
            r"killed by signal: (Terminated|Hangup|Interrupt)\b",
            r"exitcode[: =]+-15\b|Training - Interrupted|MaxWaitTimeExceeded",
            r"CapacityError|InsufficientInstanceCapacity",
            r"\bpod\b[^\n]{0,40}\b(evicted|preempted)|The node was low on resource|Preempt(ed|ion) notice",
            r"NodeDiedError|ActorDiedError|client_loop: send disconnect|Connection to \S+ closed by remote host",
            r"Unable to contact slurm controller|slurm_\w+ error: (Socket timed out|Unable to contact)",
            r"srun: error: [^\n]*Socket timed out|Zero Bytes were transmitted or received|Node [^\n]*not responding",
        ),
        scope="end",
    ),
    Row(
        "interrupted",
        "retry",
        "The job was cancelled: run again.",
        Words(r"slurmstepd: error: \*\*\* [^\n]*CANCELLED AT"),
        # srun cancels the other ranks of a step when one has failed.
        unless=Words(
            r"^(?:\[rank\d+\]:)?\s*(?:\w+\.)*\w*Error: [^\n]*\n(?:[^\n]*\n){0,30}?slurmstepd: error: \*\*\* STEP "
        ),
        scope="end",
    ),
    Row(
        "port_in_use",
        "degrade",
        "The port that the ranks meet at is taken by another run: torchrun --master_port with another one, or 0.",
        Words(r"server socket has failed to (bind|listen)", r"DistNetworkError[^\n]*EADDRINUSE"),
    ),
    Row(
        "bad_config",
        "fail",
        "The scheduler does not take the job as it is asked for: correct partition, account and resources"
        " (engine.options in the YAML, or sbatch's).",
        Words(
            r"Batch job submission failed: (Invalid|Requested)|Requested node configuration is not available",
            r"(sbatch|srun|salloc): error: (Unable to allocate resources: )?(Invalid|unrecognized)",
            r"ResourceLimitExceeded",
            r"Memory required by task is not available|invalid partition specified|ValidationException",
        ),
        scope="end",
    ),
    Row(
        "cuda_driver_mismatch",
        "fail",
        "The container gets no GPU: install the NVIDIA container toolkit on this host (nvidia-ctk runtime configure),"
        " then try docker run --gpus all.",
        Words(
            r"could not select device driver|unknown (or invalid )?runtime( name)?( specified)?:? ?\"?nvidia",
            r"nvidia-container-cli: \w+|nvidia-container-runtime[^\n]*(not found|no such file)",
            r"unresolvable CDI devices|libnvidia-container[^\n]*(fail|error)",
        ),
        scope="end",
    ),
    Row(
        "download_failed",
        "retry",
        "The container's image could not be fetched now: tried again; docker pull it once before the batch.",
        Words(
            r"toomanyrequests:|TLS handshake timeout|dial tcp[^\n]*(i/o timeout|lookup|connection refused)",
            r"Error response from daemon: [^\n]*(Client\.Timeout|context deadline|request canceled|EOF$|50[234] )",
        ),
        scope="end",
    ),
    Row(
        "missing_dependency",
        "fail",
        "The container does not start: see that the image, and in it the program, are there: docker run --rm IMAGE"
        " PROGRAM --help.",
        Words(
            r"pull access denied|repository does not exist|manifest (unknown|for [^\n]* not found)|No such image",
            r"Cannot connect to the Docker daemon|permission denied while trying to connect to the Docker",
            r"OCI runtime (create|exec) failed|executable file not found in \$PATH",
            r"exec(ve)?[^\n]{0,60}exec format error",
            r"docker: invalid reference format|ImagePullBackOff|ErrImagePull|CreateContainerError|CrashLoopBackOff",
            r"FATAL: +[^\n]*(container|image|sif)\b[^\n]*(not found|no such|could not)",  # Apptainer
        ),
        scope="end",
    ),
    Row(
        "download_failed",
        "fail",
        "The cloud refuses the data (credentials, permission or address): see that the job's role may read it.",
        Words(
            r"NoCredentialsError|Unable to locate credentials|ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch",
            r"NoSuchBucket|NoSuchKey|No S3 objects found|An error occurred \((403|404|AccessDenied)\)",
        ),
    ),
)
