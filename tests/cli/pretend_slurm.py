"""Slurm on one machine: installed by name as sbatch, srun, squeue, sacct and scancel, with its jobs in $PRETEND_SLURM.

Each call is one line in the file ``calls`` there. Like Slurm, scancel tells all processes of a job to end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

SPOOL = Path(os.environ["PRETEND_SLURM"])


def sbatch(script: str) -> int:
    number = 41 + len(list(SPOOL.glob("job-*")))
    environment = {**os.environ, "SLURM_JOB_ID": str(number), "SLURM_NTASKS": "1"}
    asked = dict(re.findall(r"#SBATCH --(\S+?)=(\S+)", Path(script).read_text()))
    error = asked["error"].replace("%j", str(number))
    with open(error, "ab") as log:
        process = subprocess.Popen(
            ["bash", script], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    (SPOOL / f"job-{number}").write_text(f"{process.pid} {asked['nodes']} {asked['gpus-per-node']}")
    print(f"Submitted batch job {number}")
    return 0


def srun(*words: str) -> int:
    command = list(words)
    while command[0].startswith("--"):
        del command[: 1 if command[0] == "--unbuffered" else 2]
    tasks = int((SPOOL / f"job-{os.environ['SLURM_JOB_ID']}").read_text().split()[1])
    processes = [subprocess.Popen(command, env={**os.environ, "SLURM_PROCID": str(rank)}) for rank in range(tasks)]
    return max(process.wait() for process in processes)


def alive(group: int) -> bool:
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    return any(row[0] == str(group) and not row[1].startswith("Z") for row in map(str.split, listed.splitlines()))


def jobs() -> dict[str, int]:
    return {path.name[4:]: int(path.read_text().split()[0]) for path in SPOOL.glob("job-*")}


def squeue(*_words: str) -> int:
    print("".join(f"{number} R\n" for number, group in jobs().items() if alive(group)), end="")
    return 0


def sacct(*_words: str) -> int:
    print("JobID|State|NodeList")
    for number, group in jobs().items():
        print(f"{number}|{'RUNNING' if alive(group) else 'FAILED'}|node")
    return 0


def scancel(*numbers: str) -> int:
    for number in numbers:
        os.killpg(jobs()[number], signal.SIGTERM)
    return 0


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    with (SPOOL / "calls").open("a") as file:
        file.write(" ".join((name, *sys.argv[1:])) + "\n")
    sys.exit(
        {"sbatch": sbatch, "srun": srun, "squeue": squeue, "sacct": sacct, "scancel": scancel}[name](*sys.argv[1:])
    )
