"""``windtunnel calibrate PROFILE``: an accelerator's own figures, fitted on what was measured of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.output import Output, print_json, print_note, print_screen
from windtunnel.errors import Fault, MissingError

if TYPE_CHECKING:
    from windtunnel.cost.profile import Profile


def fit_profile(path: str, named: str | None, out: str | None, output: Output) -> int:
    """Print what the profile fits, and write the data file where asked. Raises MissingError where nothing can be."""
    from windtunnel.calibration.from_profile import fit_accelerator
    from windtunnel.catalog.constants import constants
    from windtunnel.catalog.fitted import accelerator_text
    from windtunnel.catalog.hardware import find_accelerator
    from windtunnel.catalog.profiles import read_profile
    from windtunnel.catalog.writing import write_whole
    from windtunnel.cost.anchor import curves
    from windtunnel.cost.kernels.attention import generation
    from windtunnel.job.software import Software
    from windtunnel.report.calibrate import fits_document, fits_text

    profile = read_profile(path)
    accelerator = find_accelerator(named or _named(profile)).accelerator
    date = str(dict(profile.method).get("date", ""))[:7]
    software = Software(framework="pytorch-fsdp", date=date, attention="sdpa")
    fits, measured = fit_accelerator(accelerator, software, constants(), profile), curves(profile)
    if not fits and not measured:
        rule = "a fit stands on large GEMMs, attention, passes over memory or collectives, and the profile has none"
        raise MissingError(Fault("PROFILE", path, rule, "measure --suite standard, or --world N"))
    if out is not None:
        kernel = generation(accelerator, software).kernel
        text = accelerator_text(accelerator.name, kernel, fits, measured, profile)
        write_whole(Path(out, f"{accelerator.name}.yaml"), [text])
        print_note(f"wrote {accelerator.name}.yaml in {out}", output)
    document = fits_document(accelerator.name, profile.device_name, fits, measured)
    if output.json:
        print_json(document)
    else:
        print_screen(fits_text(document), output)
    return 0


def _named(profile: Profile) -> str:
    """The one catalog accelerator a profile's device is called by. Raises MissingError where none or several are."""
    from windtunnel.catalog.hardware import accelerator_names

    words = profile.device_name.lower().replace("-", " ").split()
    found = [name for name in accelerator_names() if name.partition("-")[0] in words]
    if len(found) != 1:
        rule = f"{len(found)} accelerators of the catalog are called so"
        remedy = f"add --accelerator, one of {', '.join(found)}" if found else "add --accelerator NAME"
        raise MissingError(Fault("PROFILE", profile.device_name, rule, remedy))
    return found[0]
