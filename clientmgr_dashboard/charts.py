"""Charts as SVG: no script, no library, readable by a screen reader. The style sheet has the colours. Pure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise

from markupsafe import Markup, escape

WIDTH, HEIGHT = 720, 240
LOW = 170
"""Of a chart with one series."""
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 28
COLOURS = 8
"""Series after these share their colours."""
MARKED_UP_TO = 120
"""With more points than this, they are too close to point at."""

Values = Sequence[float | None]
Shown = Callable[[float], str]


def stacked_areas(title: str, times: Sequence[datetime], series: Mapping[str, Values]) -> Markup:
    """Amounts that add up, one on top of the other. What is unknown counts as nothing."""
    totals = [0.0] * len(times)
    layers: list[tuple[str, list[float], list[float]]] = []
    for name, values in series.items():
        below = list(totals)
        totals = [total + (value or 0.0) for total, value in zip(totals, values, strict=True)]
        layers.append((name, below, list(totals)))
    frame = _Frame(times, max(totals, default=0.0))
    shapes = []
    for number, (_name, below, above) in enumerate(layers):
        upper = [(frame.x(at), frame.y(value)) for at, value in zip(times, above, strict=True)]
        lower = [(frame.x(at), frame.y(value)) for at, value in zip(times, below, strict=True)]
        if len(times) == 1:
            # One collection is a bar, not a line of no width.
            half = 10.0
            upper = [(upper[0][0] - half, upper[0][1]), (upper[0][0] + half, upper[0][1])]
            lower = [(lower[0][0] - half, lower[0][1]), (lower[0][0] + half, lower[0][1])]
        shapes.append(
            Markup('<polygon class="area series-{}" points="{}"></polygon>').format(
                number % COLOURS, _points([*upper, *reversed(lower)])
            )
        )
    last = {name: values[-1] if values else None for name, values in series.items()}
    return frame.svg(title, shapes, last, _marks(frame, times, {"total": totals}, _amount), _amount)


def lines(title: str, times: Sequence[datetime], series: Mapping[str, Values]) -> Markup:
    """Shares from 0 to 100 %."""
    frame = _Frame(times, 1.0, percent=True)
    shapes = []
    for number, values in enumerate(series.values()):
        known = [(frame.x(at), frame.y(value)) for at, value in zip(times, values, strict=True) if value is not None]
        shapes.append(
            Markup('<polyline class="line series-{}" points="{}"></polyline>').format(number % COLOURS, _points(known))
        )
    last = {name: values[-1] if values else None for name, values in series.items()}
    return frame.svg(title, shapes, last, _marks(frame, times, series, _percent), _percent)


def trend(title: str, times: Sequence[datetime], values: Values, shown: Shown) -> Markup:
    """One number over time. Where it is unknown there is a gap."""
    known = [value for value in values if value is not None]
    frame = _Frame(times, max(known, default=0.0), height=LOW, shown=shown)
    shapes, ground = [], frame.y(0.0)
    for is_known, part in groupby(zip(times, values, strict=True), key=lambda pair: pair[1] is not None):
        if not is_known:
            continue
        points = [(frame.x(at), frame.y(value or 0.0)) for at, value in part]
        closed = [(points[0][0], ground), *points, (points[-1][0], ground)]
        shapes.append(
            Markup(
                '<polygon class="area faint series-0" points="{}"></polygon>'
                '<polyline class="line series-0" points="{}"></polyline>'
            ).format(_points(closed), _points(points))
        )
    last = {"now": values[-1] if values else None, "most": max(known, default=None)}
    return frame.svg(title, shapes, last, _marks(frame, times, {title: values}, shown), shown)


def sparkline(title: str, values: Sequence[float]) -> Markup:
    """A trend without axes, for the end of a line of text."""
    width, height = 160, 28
    top = max(values, default=0.0) or 1.0
    step = width / max(len(values) - 1, 1)
    points = [(index * step, height - 1 - value / top * (height - 3)) for index, value in enumerate(values)]
    return Markup(
        '<svg class="sparkline" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">'
        '<polyline class="line series-0" points="{}"></polyline></svg>'
    ).format(title, width, height, _points(points))


class _Frame:
    """Where a time and a value are in the picture, and the axes around it."""

    def __init__(
        self,
        times: Sequence[datetime],
        top: float,
        *,
        percent: bool = False,
        height: int = HEIGHT,
        shown: Shown | None = None,
    ) -> None:
        """`shown`: how the axis writes values; of a chart with one series, which needs no colours in its legend."""
        self._height = height
        self._shown = shown or (_percent if percent else _amount)
        self._swatches = shown is None
        self._first = min(times).timestamp() if times else 0.0
        self._last = max(times).timestamp() if times else 1.0
        self._times = (min(times), max(times)) if times else None
        self._top = 1.0 if percent else _round_up(top)
        is_short = self._times is not None and self._times[1] - self._times[0] < timedelta(days=2) and height == LOW
        self._format = "%b %d, %H:%M UTC" if is_short else "%Y-%m-%d"

    def x(self, at: datetime) -> float:
        span = self._last - self._first
        if span <= 0:
            return LEFT + (WIDTH - LEFT - RIGHT) / 2
        return LEFT + (at.timestamp() - self._first) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (1 - value / self._top) * (self._height - TOP - BOTTOM)

    def svg(
        self,
        title: str,
        shapes: Sequence[Markup],
        last: Mapping[str, float | None],
        marks: Markup,
        shown: Shown,
    ) -> Markup:
        legend = Markup("").join(
            Markup("<li>{}{} <b>{}</b></li>").format(
                Markup('<span class="swatch series-{}"></span>').format(number % COLOURS) if self._swatches else "",
                name,
                "–" if value is None else shown(value),
            )
            for number, (name, value) in enumerate(last.items())
        )
        described = ", ".join(f"{name} {'unknown' if value is None else shown(value)}" for name, value in last.items())
        return Markup(
            '<figure class="chart"><svg role="img" viewBox="0 0 {} {}"><title>{}</title><desc>{}</desc>{}{}{}</svg>'
            '<figcaption><ul class="legend">{}</ul></figcaption></figure>'
        ).format(
            WIDTH,
            self._height,
            title,
            f"Most recently: {described}",
            self._axes(),
            Markup("").join(shapes),
            marks,
            legend,
        )

    def _axes(self) -> Markup:
        parts = []
        for quarter in range(5):
            value = self._top * quarter / 4
            y = self.y(value)
            label = self._shown(value)
            parts.append(
                Markup(
                    '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"></line>'
                    '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
                ).format(LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, label)
            )
        if self._times is not None:
            ends = [(LEFT, "start", self._times[0]), (WIDTH - RIGHT, "end", self._times[1])]
            parts += [
                Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>').format(
                    x, self._height - 8, anchor, f"{at.astimezone(UTC):{self._format}}"
                )
                for x, anchor, at in (
                    ends if self._first < self._last else [((LEFT + WIDTH) // 2, "middle", ends[0][2])]
                )
            ]
        return Markup("").join(parts)


def _marks(frame: _Frame, times: Sequence[datetime], series: Mapping[str, Values], shown: Shown) -> Markup:
    """Points that show time and value when the pointer rests on them."""
    if len(times) > MARKED_UP_TO:
        return Markup("")
    return Markup("").join(
        Markup('<circle class="mark" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>').format(
            frame.x(at), frame.y(value), f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {name}: {shown(value)}"
        )
        for name, values in series.items()
        for at, value in zip(times, values, strict=True)
        if value is not None
    )


def _points(points: Sequence[tuple[float, float]]) -> Markup:
    if len(points) == 1:
        x, y = points[0]
        points = [(x - 3, y), (x + 3, y)]
    return escape(" ".join(f"{x:.1f},{y:.1f}" for x, y in points))


def _round_up(value: float) -> float:
    """The next number that is easily divided by four."""
    if value <= 4:
        return 4.0
    size = 10.0 ** (len(str(int(value))) - 1)
    steps = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
    return next(
        (upper * size for lower, upper in pairwise((0.0, *steps)) if lower * size < value <= upper * size), 10 * size
    )


def small(value: float) -> str:
    """An amount that may be a fraction."""
    return f"{value:.1f}".removesuffix(".0") if value < 10 else _amount(value)


def _amount(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e4)):
        if value >= size:
            return f"{value / (1e6 if unit == 'M' else 1e3):.4g}{unit}"
    return f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.0%}" if value in (0, 0.25, 0.5, 0.75, 1) else f"{value:.1%}"
