"""Known failures of the machine around the GPU: memory, disk, limits, data loader, scheduler, ports."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

_NO_SPACE = (
    r"No space left on device|\[Errno 28\]|\berrno = 28\b|code: 28\b|\bENOSPC\b",
    r"磁盘空间不足|设备上没有空间|デバイスに空き領域がありません|空き領域が不足",
    r"Aucun espace disponible|Espace insuffisant|kein Speicherplatz mehr|Nicht genügend Speicherplatz",
    r"No queda espacio|Espacio en disco insuficiente|Не осталось свободного места|Spazio esaurito",
)

HOST = (
    Row(
        "shm_bus_error",
        "degrade",
        "Shared memory (/dev/shm) is too small for the data loader: fewer loader workers, or more shared memory.",
        Words(
            r"killed by signal: Bus error|out of shared memory|insufficient shared memory \(shm\)",
            r"^\s*Bus error\b|\bSIGBUS\b|总线错误|creating shared memory segment|exitcode[: =]+-7\b",
            r"unable to (write to|allocate shared memory|resize|mmap)[^\n]*(shm|/torch_)",
            r"(posix_fallocate|ftruncate)[^\n]*No space left|/dev/shm/[^\n]*No space left|No space left[^\n]*/dev/shm",
            r"joblib will operate in serial mode",
        ),
        scope="end",
    ),
    Row(
        "shm_bus_error",
        "degrade",
        "It is shared memory (semaphores in /dev/shm) that is full, not the disk: use 0 loader workers, or enlarge it.",
        Words(*_NO_SPACE),
        also=Words(
            r"SimpleQueue\(|\bctx\.(R?Lock|Semaphore)\(|\bSemLock\b|_multiprocessing_helpers|\bjoblib\b",
            r"multiprocessing[/\\](synchronize|heap|shared_memory|context|queues)|_share_filename|torch_shm_manager",
        ),
    ),
    Row(
        "fd_limit",
        "degrade",
        "The limit of watched files is reached, not the disk: raise fs.inotify.max_user_watches.",
        Words(r"inotify[^\n]*(limit|No space left|Too many)"),
    ),
    Row(
        "disk_full",
        "fail",
        "The disk (or the quota) is full: free space, then run again.",
        Words(
            *_NO_SPACE,
            r"\[Errno 122\]|Disk quota exceeded|\bEDQUOT\b",
            r"not enough space on the disk|\[WinError 112\]|\bdisk (is )?full\b|(insufficient|low) (free |disk )?space",
            r"not enough (free |disk )+space|\[Errno 27\]|No usable temporary directory",
            # Those that do not say so.
            r"PytorchStreamWriter failed|inline_container[^\n]*unexpected pos|write\(\): fd \d+ failed",
            r"\bfile write failed\b|basic_ios::clear|\d+ requested and \d+ written|wrote \d+ blocks instead of",
            r"RPly: Failed writing",
            r"Failed to save checkpoint|Failed to (save|write)[^\n]*(Failed to write|write failed)",
        ),
        lasting=True,
        scope="end",
    ),
    Row(
        "fd_limit",
        "degrade",
        "The limit of open files is too low: raise it (ulimit -n 65536).",
        Words(
            r"Too many open files|\[Errno 2[34]\]|\bE[MN]FILE\b|errno = 24\b|items of ancdata",
            r"Trop de fichiers ouverts|Zu viele offene Dateien|打开的文件[过太]多|out of range in select\(\)",
            r"Demasiados (archivos|ficheros) abiertos",
        ),
    ),
    Row(
        "process_limit",
        "degrade",
        "Too many threads or processes for this account: set OMP_NUM_THREADS to a small number.",
        Words(
            r"pthread_create[^\n]*(fail|error|is 11|unavailable)|failed on pthread_create|can'?t start new thread",
            r"RLIMIT_NPROC|fork: (retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\]",
            r"unable to create new (native )?thread|Cannot fork\b|Thread creation failed|OMP: Error #34",
            r"std::system_error[^\n]*\n?[^\n]*Resource temporarily unavailable",
        ),
        scope="end",
    ),
    Row(
        "illegal_instruction",
        "fail",
        "The program needs a CPU feature that this machine lacks: install a build for this CPU.",
        Words(
            r"Illegal instruction\b(?! was encountered)|\bSIGILL\b|非法指令",
            r"-1073741795|3221225501|0xC000001D",
            r"compiled to use \w+ instructions, but these aren't available",
        ),
        scope="end",
    ),
    Row(
        "host_oom",
        "fail",
        "An array beyond any machine was asked for: a wrong size in the data or the program, no lack of memory.",
        Words(r"Unable to allocate ([\d.]+ [TPE]iB|[\d.]+ GiB for an array with shape \(\d{6,}, \d{6,}\))"),
        scope="end",
    ),
    Row(
        "host_oom",
        "degrade",
        "Host memory ran out: use fewer loader workers, keep fewer images in memory, or lower the resolution.",
        Words(
            r"line \d+:\s+\d+ (Killed|已杀死|Processus arrêté|Getötet)|^\s*(\[\d+\]\s+)?\d+ killed\s|zsh: killed",
            r"^\s*(Killed|已杀死|Getötet|Processus arrêté|Убито)(\s*$|: 9)",
            r"signal: Killed|(signal|by|with)[: ]+(9 ?\(|SIGKILL)|(died|killed|terminated)[^\n]{0,30} signal:? ?9\b",
            r"exitcode[: =]+-9\b|died with <Signals\.SIGKILL",
            r"exit(ed)?( with)? (code|status) 137\b|failed with code (9|137|35072)\b",  # os.system() multiplies by 256
            r"oom[-_ ]?kill|\boom_reaper\b|out[- ]of[- ]memory handler|out of memory: Kill|(?<![A-Z_])OUT_OF_MEMORY\b",
            r"using all available RAM|\bout of RAM\b",
            r"exceeded (job |step )?memory limit|due to memory pressure|running low on memory|task \d+: Out Of Memory",
            r"TERM_MEMLIMIT|\bmemory usage limit\b|cgroup out of memory|\bOOMKilled\b",
            r"\bnot enough memory: you tried to allocate|java\.lang\.OutOfMemoryError",
            r"std::bad_alloc|\bbad allocation\b|DefaultCPUAllocator|(?<!OutOf)MemoryError\b",
            r"Unable to allocate [\d.]+ \w+ for an array|Failed to allocate \d+ bytes in function",
            r"\[WinError 8\]|\[Errno 12\]|Cannot allocate memory|无法分配内存|Impossible d'allouer",
            r"-1073741801|-1073741523|0xC0000017|0xC000012D",
        ),
        unless=Words(r"cudaErrorMemoryAllocation|bad_?alloc\w*: (CUDA|RMM|out_of_memory: CUDA)"),
        scope="end",
    ),
    Row(
        "dataloader_worker_killed",
        "retry",
        "A loader worker's shared memory vanished (a race): tried once more, then with fewer workers.",
        Words(r"unable to open shared memory object"),
    ),
    Row(
        "hang",
        "retry",
        "A loader worker did not answer: tried once more; again means a dead share, or a deadlock of the workers.",
        Words(r"DataLoader timed out after"),
    ),
    Row(
        "dataloader_worker_killed",
        "degrade",
        "A loader worker died: use fewer loader workers; with 0 the real error shows.",
        Words(
            r"DataLoader worker[^\n]*(exited unexpectedly|killed by signal(?!: (Term|Hang|Inter)))",
            r"Pin memory thread exited",
            r"process in the process pool was terminated abruptly|BrokenProcessPool",
        ),
        unless=Words(r"CUDA (error|out of memory)|CU(BLAS|DNN)_STATUS"),  # the loader dies with the process
    ),
    Row(
        "dataloader_worker_killed",
        "degrade",
        "The talk with a loader worker broke off: use 0 loader workers; then the real error shows.",
        Words(
            r"^\s*(BrokenPipe|ConnectionReset|ConnectionRefused|EOF)Error\b|Can't pickle|cannot pickle '",
            r"process has finished its bootstrapping",
        ),
        also=Words(
            r"multiprocessing[/\\.]|resource_sharer|rebuild_storage|_MultiProcessingDataLoaderIter|popen_spawn",
            r"start a new process before",
        ),
    ),
    Row(
        "port_in_use",
        "degrade",
        "The viewer's port is taken by another run: use another port, or no viewer.",
        Words(
            r"Address already in use|\bEADDRINUSE\b|\[Errno (98|48|10048)\]|\[WinError (10048|10013)\]",
            r"Port \d+ is (already )?in use|port is already allocated|Only one usage of each socket address",
            r"conflicting ports|failed to listen on any local network address",
            r"地址已在使用|套接字地址|adresse de socket|Adresse déjà utilisée",
            r"Socketadresse|Adresse wird bereits verwendet",
            r"Cannot find (an )?(empty|available|free) port",
        ),
        scope="optional",
    ),
)
