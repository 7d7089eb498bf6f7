"""A real Slurm on this machine: a controller, and nodes that each have a name, processes and mounts of their own.

Needs root, slurm-wlm and munge. Nothing listens but on 127.0.0.1, all state lies in one folder, and whatever was
started ends with the `with` block: a node's processes with its first one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

PORT = 20_000 + os.getpid() % 500 * 20
"""The first of its ports: test runs beside each other have others."""
PATIENCE_S = 30.0
SIZE = "CPUs=16 RealMemory=4000"
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "unshare", "setpriv", "mknod")
SPACES = ("--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
CONF = """\
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={place}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool.%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=20
SlurmdTimeout={node_timeout_s}
MessageTimeout=5
MinJobAge={forget_s}
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=60 State=UP DefMemPerCPU=50
"""


def lack() -> str:
    """Return what is missing for such a cluster; empty if nothing is."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    if missing := [name for name in NEEDED if not shutil.which(name)]:
        return f"a Slurm of our own needs {', '.join(missing)}: apt-get install slurm-wlm munge"
    may = subprocess.run(["unshare", *SPACES, "hostname", "n1"], capture_output=True, check=False)
    return "" if may.returncode == 0 else f"no namespaces: {may.stderr.decode().strip()}"


class SlurmCluster:
    """Nodes n1, n2, … with GPUs that are none; a context manager."""

    def __init__(self, num_nodes: int = 3, gpus: int = 2, *, node_timeout_s: int = 5, forget_s: int = 300) -> None:
        """Prepare it.

        Args:
            num_nodes: so many.
            gpus: of each node.
            node_timeout_s: a node that does not answer for so long is down.
            forget_s: after so long squeue knows no more of a job that has ended.
        """
        self.gpus = gpus
        self.names = [f"n{number}" for number in range(1, num_nodes + 1)]
        self._times = {"node_timeout_s": node_timeout_s, "forget_s": forget_s}
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> SlurmCluster:
        with ExitStack() as stack:
            # munged wants all above its socket to be open to others, which the folders of tests are not
            self.place = Path(tempfile.mkdtemp(prefix="slurm."))
            stack.callback(shutil.rmtree, self.place, ignore_errors=True)
            self.place.chmod(0o755)
            self.blind = self.place / "blind"
            """What lies here is to be seen everywhere but on the nodes."""
            for name in ("state", "munge", "blind"):
                (self.place / name).mkdir(mode=0o711)
            self._configure()
            self._start_munge(stack)
            self.start_controller()
            stack.callback(self.stop_controller)
            for name in self.names:
                self.power_on(name)
            stack.callback(self._power_all_off)
            stack.callback(self._clear)
            self.await_idle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variable by which Slurm's commands find it."""
        return {"SLURM_CONF": str(self.place / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """Run a command of Slurm; return what it says."""
        return subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=True).stdout

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def _started(self, *command: str) -> subprocess.Popen[bytes]:
        """Start what ends with us, also if we are killed."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], env=self._environment(), **streams)

    def start_controller(self) -> None:
        """Start it; it goes on where it was."""
        self._controller = self._started("slurmctld", "-D")
        end = time.monotonic() + PATIENCE_S
        while subprocess.run(
            ["scontrol", "ping"], env=self._environment(), capture_output=True, check=False
        ).returncode:
            if time.monotonic() > end or self._controller.poll() is not None:
                raise TimeoutError(f"slurmctld has not come up: {(self.place / 'slurmctld.log').read_text()[-500:]}")
            time.sleep(0.05)

    def stop_controller(self) -> None:
        """Kill it."""
        self._controller.kill()
        self._controller.wait()

    def power_on(self, name: str) -> None:
        """Start a node."""
        script = (
            'hostname "$0" && mount --bind "$1/hosts" /etc/hosts && mount -t tmpfs none "$1/blind" && slurmd -D -N "$0"'
        )
        self._nodes[name] = self._started("unshare", *SPACES, "sh", "-c", f"{script} & wait", name, str(self.place))

    def power_off(self, name: str) -> None:
        """Pull a node's plug: all that runs on it is gone, and nobody is told."""
        node = self._nodes.pop(name)
        node.kill()  # its first process goes with it, and with that all others
        node.wait()

    def await_idle(self) -> None:
        """Wait until all nodes are up and have nothing to do."""
        end = time.monotonic() + PATIENCE_S
        while (told := self.ask("sinfo", "-h", "-t", "idle", "-o", "%D").strip()) != str(len(self.names)):
            if time.monotonic() > end:
                logs = "\n".join(path.read_text()[-500:] for path in self.place.glob("*.log"))
                raise TimeoutError(f"of {len(self.names)} nodes {told or 0} are idle: {logs}")
            time.sleep(0.1)

    def mend(self) -> None:
        """End what is left in the queue, switch on what was switched off."""
        self.ask("scancel", "--user=root")
        for name in set(self.names) - self._nodes.keys():
            self.power_on(name)
        end = time.monotonic() + PATIENCE_S
        while self.ask("squeue", "--noheader") and time.monotonic() < end:
            time.sleep(0.1)
        self.await_idle()

    def _configure(self) -> None:
        gres, cards = "", [self.place / f"nvidia{number}" for number in range(self.gpus)]
        for card in cards:  # character devices: of plain files Slurm sets no CUDA_VISIBLE_DEVICES
            subprocess.run(["mknod", card, "c", "1", "3"], check=True)
            gres = f"Gres=gpu:fake:{self.gpus}"
        lines = [f"Name=gpu Type=fake File={card}\n" for card in cards]
        (self.place / "gres.conf").write_text("".join(lines))
        version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
        is_old = version.split()[-1] < "23.11"  # before that there is no word for none; v1 is not used by what is below
        (self.place / "cgroup.conf").write_text(f"CgroupPlugin={'cgroup/v1' if is_old else 'disabled'}\n")
        (self.place / "hosts").write_text(f"127.0.0.1 localhost {' '.join(self.names)}\n")
        nodes = [
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={PORT + 1 + number} {SIZE} {gres}"
            for number, name in enumerate(self.names)
        ]
        facts = {"port": PORT, "place": self.place, "nodes": "\n".join(nodes), **self._times}
        (self.place / "slurm.conf").write_text(CONF.format(**facts))

    def _start_munge(self, stack: ExitStack) -> None:
        munge = self.place / "munge"
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o600)
        files = [
            f"--{name}={munge / name.partition('-')[0]}" for name in ("key-file", "socket", "pid-file", "log-file")
        ]
        files.append(f"--seed-file={munge / 'seed'}")
        server = self._started("munged", "--foreground", *files)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        end = time.monotonic() + PATIENCE_S
        while not (munge / "socket").exists():
            if time.monotonic() > end:
                raise TimeoutError(f"munged has not come up: {(munge / 'log').read_text()}")
            time.sleep(0.01)

    def _clear(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.ask("scancel", "--user=root", "--signal=KILL", "--full")

    def _power_all_off(self) -> None:
        for name in list(self._nodes):
            self.power_off(name)
