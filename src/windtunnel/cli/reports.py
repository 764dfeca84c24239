"""Reports and plots: which names they may have, and what goes into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.errors import Fault, FormatError, MissingError

if TYPE_CHECKING:
    from windtunnel.cli.search import Search
    from windtunnel.report.blocks import Block
    from windtunnel.report.drawing import Drawing
    from windtunnel.search.trial import Trial

PAGES = (".html", ".md")
PICTURES = (".svg", ".png")


def check_report(path: str) -> None:
    """Raises FormatError for a name that says no format."""
    if Path(path).suffix not in PAGES:
        raise FormatError(Fault("--report", path, "a report is HTML or Markdown", "name a file in .html or .md"))


def check_plot(path: str) -> None:
    """Raises FormatError for a name that says no format, MissingError where what writes PNG is not installed."""
    if Path(path).suffix not in PICTURES:
        raise FormatError(Fault("--plot", path, "a search is drawn as SVG or PNG", "name a file in .svg or .png"))
    if Path(path).suffix == ".png":
        try:
            import PIL  # noqa: F401
        except ImportError:
            remedy = "pip install 'windtunnel[png]', or name a file in .svg"
            raise MissingError(Fault("--plot", path, "PNG is written by Pillow, which is missing", remedy)) from None


def write_plot(path: str, trials: Sequence[Trial]) -> None:
    from windtunnel.report.search_plot import search_plot

    _write_picture(path, search_plot(trials))


def _write_picture(path: str, drawing: Drawing) -> None:
    from windtunnel.catalog.writing import write_whole
    from windtunnel.report.svg import svg

    if Path(path).suffix == ".png":
        from windtunnel.report.png import png

        write_whole(path, [png(drawing)])
    else:
        write_whole(path, [svg(drawing)])


def write_report(
    path: str, search: Search, answer: Mapping[str, Any], trials: Sequence[Trial], more: Sequence[Block] = ()
) -> None:
    """One HTML file, or Markdown with its picture in a file beside it. ``more`` as in ``story``."""
    from windtunnel.catalog.writing import write_whole
    from windtunnel.report.blocks import Figure
    from windtunnel.report.html_page import html_page
    from windtunnel.report.markdown import markdown
    from windtunnel.report.story import story

    job = search.base
    title = f"{job.model.name} on {job.cluster.num_accelerators:,} × {job.cluster.accelerator.name}"
    blocks = story(answer, trials, _about(search, answer), more)
    if Path(path).suffix == ".html":
        write_whole(path, [html_page(title, blocks)])
        return
    figures = [block.drawing for block in blocks if isinstance(block, Figure)]
    names = [f"{Path(path).stem}{f'-{index}' if index else ''}.svg" for index in range(len(figures))]
    for name, drawing in zip(names, figures, strict=True):
        _write_picture(str(Path(path).with_name(name)), drawing)
    write_whole(path, [markdown(title, blocks, names)])


def _about(search: Search, answer: Mapping[str, Any]) -> dict[str, str]:
    import windtunnel

    batch, software = search.base.plan.batch, search.base.software
    study = answer["study"] or {}
    return {
        "Job": f"{software.framework} {software.date}, {batch.global_batch_size:,} sequences of "
        f"{batch.sequence_length:,} tokens a step",
        "Objective": ", ".join(objective.name for objective in search.aim.objectives),
        "Proposers": ", ".join(study.get("proposers", ())) or "exhaustive",
        "Oracle": str(study.get("oracle", "the projection")),
        "Written by": f"windtunnel {windtunnel.__version__}",
    }
