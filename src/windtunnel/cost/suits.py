"""Whether a profile suits a job: another device, another software or another time is said, never passed over."""

from __future__ import annotations

from windtunnel.cost.profile import Profile
from windtunnel.job.job import Job

MONTHS = 12
"""Between a job's software and a measurement, beyond which they are taken for different generations."""


def warnings(job: Job, profile: Profile) -> tuple[str, ...]:
    """A sentence for everything in which the profile is of something else than the job."""
    found = (_device(job, profile), _framework(job, profile), _date(job, profile))
    return tuple(sentence for sentence in found if sentence)


def same_device(job: Job, profile: Profile) -> bool:
    """Whether a profile is of the job's accelerator, as far as names tell."""
    return not _device(job, profile)


def _device(job: Job, profile: Profile) -> str:
    """Devices are compared by name: the catalog's begins with the word of the maker's that tells parts apart."""
    name = job.cluster.accelerator.name
    first = name.split()[0].split("-")[0].lower()
    if first in profile.device_name.lower().replace("-", " ").split() or name == profile.device_name:
        return ""
    return (
        f"the profile was measured on {profile.device_name}, the job runs on {name}: its seconds are taken as they are"
    )


def _framework(job: Job, profile: Profile) -> str:
    """Layers of one framework in a job of another."""
    layers = dict(profile.software).get("layers", "").partition(" ")[0]
    if not layers or layers in LAYERS_OF.get(job.software.framework, ()):
        return ""
    return f"the profile's layers are those of {layers}, the job runs {job.software.framework}"


LAYERS_OF = {
    "automodel": ("transformers",),
    "deepspeed": ("transformers",),
    "megatron-bridge": ("megatron-core",),
    "megatron-core": ("megatron-core",),
    "nemo": ("megatron-core",),
    "primus": ("megatron-core", "torchtitan"),
    "pytorch-fsdp": ("transformers", "torchtitan"),
    "torchtitan": ("torchtitan",),
}
"""Whose layers a framework's jobs run."""


def _date(job: Job, profile: Profile) -> str:
    measured = str(dict(profile.method).get("date", ""))[:7]
    if not measured or abs(_month(measured) - _month(job.software.date)) <= MONTHS:
        return ""
    torch = dict(profile.software).get("torch", "unknown")
    return f"the profile was measured in {measured} with torch {torch}, the job's software is of {job.software.date}"


def _month(date: str) -> int:
    """``2026-03`` counted in months."""
    year, month = date.split("-")[:2]
    return 12 * int(year) + int(month)
