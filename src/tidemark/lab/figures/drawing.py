"""Drawing: panels as a PNG, with matplotlib from the extra `lab`. Everything else works without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark.lab.figures.experiment import Panel, PlotSeries

WIDTH_INCHES, PANEL_INCHES = 9.0, 3.4
DOTS_AN_INCH = 110
HINT = "there is no picture without matplotlib: pip install 'tidemark[lab]'"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401  (only to see whether it is installed)
    except ModuleNotFoundError:
        return False
    return True


def draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Write one picture with the panels below each other. Equal panels make equal files."""
    # Not pyplot, which keeps global state and looks for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, PANEL_INCHES * len(panels) + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for axes, panel in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        _panel(axes, panel)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=DOTS_AN_INCH, metadata={"Software": None})


def _panel(axes: Any, panel: Panel) -> None:
    for series in panel.series:
        _series(axes, series)
    for low, high, label in panel.spans:
        axes.axvspan(low, high, color="0.9", label=label)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_ylim(bottom=0 if all((each.y >= 0).all() for each in panel.series if len(each.y)) else None)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _series(axes: Any, series: PlotSeries) -> None:
    match series.style:
        case "points":
            axes.plot(series.x, series.y, ".", markersize=4, label=series.label)
        case "steps":
            axes.step(series.x, series.y, where="post", label=series.label)
        case "marked":
            axes.plot(series.x, series.y, "o-", markersize=4, label=series.label)
        case "line":
            axes.plot(series.x, series.y, label=series.label)
