"""What a run has left behind on this machine: the difference of the states before and after it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.machine import command_line, processes
from e2e.network import namespaces
from e2e.nodes import cgroups

PARAMETERS = Path("/proc/sys")
COMPARED_PARAMETERS = ("kernel", "vm", "fs", "net/ipv4", "net/core", "net/netfilter", "net/bridge")
VOLATILE = (
    "random", "ns_last_pid", "-state", "dentry-state", "file-nr", "inode-nr", "pty/nr", "aio-nr", "nf_conntrack_count",
    "perf_event", "sched_domain", "drop_caches", "compact_memory", "stat_refresh", "tcp_fastopen_key", "quota",
    "binfmt_misc", "/neigh/", "/conf/",
)  # fmt: skip
"""Parts of parameters that change by themselves, or come and go with a network interface."""

CHANGED_BY_KUBELETS = (
    "kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)  # fmt: skip

HOST_PATHS = (
    "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd", "/run/netns",
    "/run/kubernetes", "/run/runc", "/run/flannel", "/run/xtables.lock", "/usr/libexec/kubernetes", "/etc/cni",
    "/opt/cni", "/etc/kubernetes", "/run/libcontainer", "/run/buildah", "/var/lib/containers", "/run/containers",
    "/var/run/kubernetes", "/var/lib/containerd", "/opt/containerd",
)  # fmt: skip
"""Where the programs put files outside of the folder that they get."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """Everything that can be left behind, as sorted names; kernel parameters with their values."""

    parameters: dict[str, str]
    mounts: list[str]
    namespaces: list[str]
    cgroups: list[str]
    links: list[str]
    paths: list[str]

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> MachineState:
        return cls(**json.loads(path.read_text()))


def machine_state() -> MachineState:
    """The present state of the machine."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    groups = [str(path) for root in cgroups() for path in root.iterdir() if path.is_dir()]
    return MachineState(
        parameters=dict(_parameters()),
        mounts=sorted(mounts),
        namespaces=namespaces(),
        cgroups=sorted(groups),
        links=sorted(os.listdir("/sys/class/net")),
        paths=sorted(path for path in HOST_PATHS if os.path.lexists(path)),
    )


def leftovers(before: MachineState, now: MachineState, *folders: Path) -> list[str]:
    """What exists now and did not before, a line for each; and processes whose command line names one of `folders`."""
    found = [
        f"kernel parameter {name}: {before.parameters[name]} before, {value} now"
        for name, value in now.parameters.items()
        if before.parameters.get(name, value) != value
    ]
    for what in ("mounts", "namespaces", "cgroups", "links", "paths"):
        earlier = set(getattr(before, what))
        found += [f"{what}: {name}" for name in getattr(now, what) if name not in earlier]
    for pid in processes():
        line = command_line(pid)
        if pid != os.getpid() and any(f"{folder}/" in line for folder in folders):
            found.append(f"process {pid}: {line[:200]}")
    return found


def restore_kernel_parameters(before: MachineState) -> None:
    """Restores the kernel parameters that a kubelet changes."""
    for name in CHANGED_BY_KUBELETS:
        path, wanted = PARAMETERS / name, before.parameters.get(name)
        if wanted is not None and path.read_text().strip() != wanted:
            path.write_text(wanted)


def _parameters() -> Iterator[tuple[str, str]]:
    for top in COMPARED_PARAMETERS:
        for path in sorted((PARAMETERS / top).rglob("*")):
            name = str(path.relative_to(PARAMETERS))
            if any(part in name for part in VOLATILE) or not path.is_file():
                continue
            try:
                yield name, path.read_text().strip()
            except OSError:
                continue  # may only be written, or has no value now
