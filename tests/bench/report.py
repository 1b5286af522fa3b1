"""Figures as people read them: a median, its spread, and a bar to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RESULTS = Path("bench-results")


@dataclass(frozen=True)
class Figure:
    """One claim: what was measured, and the bar that it is held against."""

    title: str
    values: Sequence[float]
    bar: float
    unit: str = ""
    at_least: bool = True
    best: bool = False
    """Whether the best value counts, as for a start time, and not the median."""

    @property
    def value(self) -> float:
        """The value that counts."""
        if self.best:
            return max(self.values) if self.at_least else min(self.values)
        return median(self.values)

    @property
    def holds(self) -> bool:
        """Whether the bar is met."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def margin(self, value: float) -> float:
        """How many times better than the bar a value is; a hundredth to a hundred, to be drawn."""
        if self.at_least:
            return max(min(value / self.bar, 100), 0.01)
        return max(min(self.bar / value, 100), 0.01) if value else 100

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "holds" if self.holds else "FAILS"
        spread = f"{min(self.values):.3g} to {max(self.values):.3g}"
        return (
            f"{self.title:<58} {self.value:>8.3g}{self.unit:<5} ({spread}; n={len(self.values)})"
            f"   bar {sign} {self.bar:g}{self.unit}  {verdict}"
        )


def plot(figures: Sequence[Figure], name: str, *, costs: Mapping[str, float] | None = None) -> Path:
    """Draw each figure against its bar; returns the picture's path.

    Args:
        figures: What is held against a bar.
        name: What was measured; the picture's name.
        costs: CPU seconds a million messages by who takes them, drawn below.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    costs = costs or {}
    heights = [0.55 * len(figures) + 1.6] + [0.4 * len(costs) + 1] * bool(costs)
    canvas, panels = plt.subplots(
        nrows=len(heights),
        squeeze=False,
        height_ratios=heights,
        figsize=(10, sum(heights)),
        constrained_layout=True,
    )
    axes = panels[0, 0]
    for row, figure in enumerate(reversed(figures)):
        scaled = [figure.margin(value) for value in figure.values]
        colour = "#2a7f62" if figure.holds else "#c0392b"
        axes.plot(scaled, [row] * len(scaled), "o", color=colour, alpha=0.35, markersize=7)
        axes.plot([figure.margin(figure.value)], [row], "D", color=colour, markersize=8)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, 0.5), max(right, 2))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(figures)))
    axes.set_yticklabels(
        [
            f"{figure.title}\n{figure.value:.3g}{figure.unit}, "
            f"bar {'≥' if figure.at_least else '≤'} {figure.bar:g}{figure.unit}"
            for figure in reversed(figures)
        ],
        fontsize=8,
    )
    axes.set_ylim(-0.7, len(figures) - 0.3)
    axes.set_xlabel("times better than its bar (diamond: what counts; dots: each run)")
    axes.set_title(f"{name}: right of the line meets its bar")
    axes.grid(visible=True, axis="x", alpha=0.3)
    if costs:
        bars = panels[1, 0].barh(list(costs)[::-1], list(costs.values())[::-1], color="#5b7fa6")
        panels[1, 0].bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
        panels[1, 0].set_xscale("log")
        panels[1, 0].tick_params(axis="y", labelsize=8)
        panels[1, 0].set_xlabel("CPU seconds a million messages (median)")
        panels[1, 0].margins(x=0.1)
        panels[1, 0].set_xlim(left=1)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.png"
    canvas.savefig(path, dpi=130)
    return path
