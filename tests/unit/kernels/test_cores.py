"""How many threads the machine leaves, by files as the kernel writes them."""

import os

import pytest

from mvindex.kernels.threads import Machine, read_groups

TICKS = os.sysconf("SC_CLK_TCK")
V2, V1 = "0::/a/b\n", "5:cpu,cpuacct:/a/b\n0::/\n"


class FakeMachine:
    """A root of files, a set of cores, and clocks that a test sets."""

    def __init__(self, root, num_cores):
        self.root, self.cores = root, frozenset(range(num_cores))
        self.now = self.own = 0.0

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def idle(self, *seconds):
        """Say for how long each core was idle since it started; a fifth of that while a disk was waited for."""
        lines = [f"cpu{at} 7 7 7 {int(0.8 * one * TICKS)} {int(0.2 * one * TICKS)} 7" for at, one in enumerate(seconds)]
        self.write("proc/stat", "\n".join(["cpu 9 9 9 99999 9 9", *lines, "intr 1 2 3", "procs_running 1"]))

    def opened(self):
        return Machine(self.root, lambda: self.cores, lambda: self.now, lambda: self.own)


@pytest.fixture
def fake(tmp_path):
    return lambda num_cores: FakeMachine(tmp_path, num_cores)


@pytest.mark.parametrize(
    ("cores", "idle", "own", "threads"),
    [
        (2, (10, 10), 0, 2),
        (2, (10, 0), 0, 1),
        (2, (0, 0), 0, 1),
        # This process used both: nobody else did.
        (2, (0, 0), 20, 2),
        (2, (5, 0), 5, 1),
        (4, (10, 10, 4, 2), 0, 3),
        (4, (3, 3, 0, 0), 10, 2),
        # More own time than there is, or less than before in a forked child.
        (2, (10, 10), 30, 2),
        (2, (10, 10), -5, 2),
        # Cores of other processes' affinity are not looked at.
        (1, (10, 0, 0, 0), 0, 1),
    ],
)
def test_other_processes_time_is_left_to_them(fake, cores, idle, own, threads):
    machine = fake(cores)
    machine.idle(*(100 for _ in idle))
    machine.own = 50.0
    opened = machine.opened()
    machine.now, machine.own = 10.0, 50.0 + own
    machine.idle(*(100 + one for one in idle))
    assert opened.choose().threads == threads


@pytest.mark.parametrize(
    ("files", "threads"),
    [
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 8),
        # A group above limits, too.
        (
            {
                "proc/self/cgroup": V2,
                "sys/fs/cgroup/a/b/cpu.max": "500000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "150000 50000\n",
            },
            3,
        ),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        # Without a list of groups the topmost are looked at, as in a container.
        ({"sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        ({"proc/loadavg": "7.00 7.00 7.00 6/99 4242\n"}, 3),
        ({"proc/loadavg": "7.00 7.00 7.00 1/99 4242\n"}, 8),
        ({"proc/loadavg": "7.00 7.00 7.00 60/99 4242\n"}, 1),
        ({"proc/loadavg": "unreadable\n", "proc/stat": "cpu\n"}, 8),
        ({}, 8),
    ],
)
def test_quotas_and_running_tasks_limit_threads(fake, files, threads):
    machine = fake(8)
    for name, text in files.items():
        machine.write(name, text)
    assert machine.opened().choose().threads == threads


def test_the_load_is_looked_at_once_a_second(fake):
    machine = fake(2)
    machine.idle(0, 0)
    opened = machine.opened()
    machine.now = 2.0
    machine.idle(2, 2)
    assert opened.choose().threads == 2
    machine.now = 2.9
    machine.idle(2.9, 2)
    assert opened.choose().threads == 2
    machine.now = 4.0
    machine.idle(4.0, 2)
    assert opened.choose() == (1, "2 cores; other processes leave 1.0 of 2")


@pytest.mark.parametrize("passed_s", [0.01, 600.0])
def test_a_look_too_short_or_long_ago_does_not_count(fake, passed_s):
    machine = fake(4)
    machine.idle(0, 0, 0, 0)
    machine.write("proc/loadavg", "0 0 0 3/99 1\n")
    opened = machine.opened()
    machine.now = passed_s
    machine.idle(*[passed_s] * 4)
    assert opened.choose() == (2, "4 cores; other processes leave 2.0 of 4")


def test_another_affinity_makes_the_last_look_useless(fake):
    machine = fake(4)
    machine.idle(0, 0, 0, 0)
    opened = machine.opened()
    machine.now, machine.cores = 10.0, frozenset({0, 1})
    machine.idle(0, 0, 9, 9)
    assert opened.choose() == (2, "2 cores")


def test_limits_come_from_the_innermost_group_out(tmp_path):
    for name, text in {
        "proc/self/cgroup": V2,
        "sys/fs/cgroup/a/memory.max": "9\n",
        "sys/fs/cgroup/a/b/memory.max": "5",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [*read_groups("memory", ["memory.max"], ["memory.limit_in_bytes"], tmp_path)] == [["5"], ["9"]]
