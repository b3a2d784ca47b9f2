"""A Slurm cluster of one node on this machine, with processors and GPUs that it only counts."""

import os
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from getpass import getuser

_START_S = 60
# 64 processors and 256 GB, more than any machine that runs tests: the jobs of examples/slurm ask for so many.
_SETTINGS = """ClusterName=tests
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
NodeName={host} CPUs=64 RealMemory=262144 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextmanager
def slurm_cluster(folder):
    """Run the cluster with its files in the folder; yield the environment in which sbatch finds it."""
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    settings = {"host": host, "user": getuser(), "folder": folder, "ports": _free_ports(2)}
    (folder / "slurm.conf").write_text(_SETTINGS.format(**settings))
    files = (f"NodeName={host} Name=gpu File={file}\n" for file in ("/dev/null", "/dev/zero"))
    (folder / "gres.conf").write_text("".join(files))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munge = ["--key-file", key, "--socket", folder / "munge.socket", "--pid-file", folder / "munged.pid"]
    munge += ["--log-file", folder / "munged.log", "--seed-file", folder / "seed", "--force", "--foreground"]
    with ExitStack() as stack:
        for command in (["munged", *munge], ["slurmctld", "-D"], ["slurmd", "-D"]):
            started = subprocess.Popen(
                list(map(str, command)), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(started.wait, 60)
            stack.callback(started.terminate)
        until = time.monotonic() + _START_S
        while "idle" not in _output(environment, "sinfo", "--noheader", "--format=%T"):
            assert time.monotonic() < until, (folder / "slurmctld.log").read_text()
            time.sleep(0.2)
        yield environment


def unfinished(environment):
    """Return the states of the jobs that are not finished."""
    return _output(environment, "squeue", "--noheader", "--array", "--format=%T").split()


def _output(environment, *command):
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def _free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
