"""A figure as the page shows it: its panels apart, so that a phone can stack them, in the colours of the page."""

from __future__ import annotations

import copy
import hashlib
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from harness.reporting.figures.figure_style import COLOURS, style

POINTS = 72  # per inch: the unit of matplotlib's SVG
PAD = 3.0  # points around a panel
PIXELS = 4 / 3  # of CSS in a point
ROOM = 1168  # CSS pixels from edge to edge of a wide page, see page.css
GAP = 26  # between panels
LABEL_INCHES = 0.9  # that the labels of an axis take which another panel has lent so far

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_GROUP, _DEFS = f"{{{_SVG}}}g", f"{{{_SVG}}}defs"
_PAINTED = (f"{{{_SVG}}}use", f"{{{_SVG}}}path")

# What a figure draws in, and what the page's style sheet calls it, in its light and its dark form.
_INKS = {"#333333": "var(--ink)", "#999999": "var(--rule)", "#777777": "var(--soft)", "#e6e6e6": "var(--grid)"}
_PAINTS = {colour.lower(): f"var(--c{number})" for number, colour in enumerate(COLOURS)}
_PAPER = {"#ffffff": "var(--paper)", "white": "var(--paper)", "#d9d9d9": "var(--grid)"}
_THEME = _PAINTS | _INKS | _PAPER


@dataclass(frozen=True)
class Drawing:
    """A figure in pieces.

    Attributes:
        caption: what it says of itself, title and remark below.
        panels: one SVG document each, in the order of the figure.
        legend: likewise; None where it has none.
        across: how many panels stand in a row of the page where it is wide.
        beside: whether the legend then has room beside them; else it stands above.
        styles: class -> what it declares, of the classes inside of panels and legend; equal classes declare the same.
    """

    caption: str
    panels: tuple[str, ...]
    legend: str | None
    across: int = 1
    beside: bool = False
    styles: Mapping[str, str] = field(default_factory=dict)


def drawing(name: str, figure: Figure) -> Drawing:
    """Take a figure apart; the figure itself is changed and of no further use.

    Args:
        name: begins every id in the panels, and so must be another one for each figure of a page.
        figure: without pictures.
    """
    caption = "; ".join(unescaped(text) for text in (figure.get_suptitle(), figure.get_supxlabel()) if text)
    figure.suptitle("")
    figure.supxlabel("")
    shown = [axes for axes in figure.axes if axes.axison]
    with style(), matplotlib.rc_context({"svg.fonttype": "none"}):
        _lend_no_labels(figure, shown)
        parts: list[Axes | Legend] = [*shown, *figure.legends]
        for number, part in enumerate(parts):
            part.set_gid(f"part{number}")
        figure.patch.set_visible(False)
        for axes in shown:
            axes.patch.set_visible(False)
        root, boxes = _rendered(figure, parts)
    styles: dict[str, str] = {}
    cut = [_panel(root, f"part{number}", box, f"{name}-{number}", styles) for number, box in enumerate(boxes)]
    count = len(shown)
    across, beside = _arranged(boxes[:count], boxes[count:])
    return Drawing(caption, tuple(cut[:count]), cut[count] if figure.legends else None, across, beside, styles)


def _arranged(panels: Sequence[Bbox], legends: Sequence[Bbox]) -> tuple[int, bool]:
    """(panels in a row, whether the legend is beside them) on a wide page: as in the figure, if there is room.

    Of a row that is too long the half is taken, so that rows stay equal.
    """
    across = len([box for box in panels if box.y0 == panels[0].y0]) or 1
    width = float(PIXELS * max(box.width for box in panels) + GAP)
    while across > 1 and across * width - GAP > ROOM:
        across = -(-across // 2)
    return across, bool(legends and across * width + PIXELS * legends[0].width <= ROOM)


def unescaped(text: str) -> str:
    """Undo `figure_style.plain`."""
    return text.replace(r"\$", "$")


def _lend_no_labels(figure: Figure, shown: Sequence[Axes]) -> None:
    """Give every panel the labels that a shared axis shows at the first one alone."""
    lent = 0
    for axes in shown[1:]:
        if axes.get_shared_y_axes().joined(axes, shown[0]) and not axes.yaxis.get_tick_params().get("labelleft", True):
            axes.tick_params(labelleft=True)
            lent += 1
        if not axes.get_ylabel():
            axes.set_ylabel(shown[0].get_ylabel())
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + LABEL_INCHES * lent, height)


def _rendered(figure: Figure, parts: Sequence[Axes | Legend]) -> tuple[ET.Element, list[Bbox]]:
    """The SVG of the figure, and the box of each part in its coordinates."""
    figure.set_dpi(POINTS)
    measure = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # drawn again, everything stays where it was measured
    height = figure.get_size_inches()[1] * POINTS
    renderer = measure.get_renderer()
    found = [part.get_tightbbox(renderer) or figure.bbox for part in parts]
    boxes = []
    for part, box in zip(parts, found, strict=True):
        row = [other for beside, other in zip(parts, found, strict=True) if _same_row(part, beside)] or [box]
        low, high = min(other.y0 for other in row), max(other.y1 for other in row)
        boxes.append(Bbox([[box.x0 - PAD, height - high - PAD], [box.x1 + PAD, height - low + PAD]]))
    buffer = io.BytesIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return ET.fromstring(buffer.getvalue()), boxes


def _same_row(part: Axes | Legend, other: Axes | Legend) -> bool:
    """Whether two panels stand side by side: they are cut at the same height, so that their axes stay in line."""
    if not isinstance(part, Axes) or not isinstance(other, Axes):
        return part is other
    return abs(part.get_position().y0 - other.get_position().y0) < 1e-6


def _panel(root: ET.Element, gid: str, box: Bbox, prefix: str, styles: dict[str, str]) -> str:
    """One part of a figure as a document of its own, with all that it refers to and ids of its own.

    What its style attributes declare goes to `styles`, in their place are classes.
    """
    content = next(group for group in root.iter(_GROUP) if group.get("id") == gid)
    content = copy.deepcopy(content)
    there = {element.get("id") for element in content.iter()}
    elsewhere = {element.get("id"): element for element in root.iter() if element.get("id")}
    wanted = sorted(set(_references(content)) - there)
    document = ET.Element(
        f"{{{_SVG}}}svg",
        {
            "viewBox": f"{box.x0:.1f} {box.y0:.1f} {box.width:.1f} {box.height:.1f}",
            "width": f"{box.width * PIXELS:.0f}",
            "class": "panel",
        },
    )
    if wanted:
        definitions = ET.SubElement(document, f"{{{_SVG}}}defs")
        definitions.extend(copy.deepcopy(elsewhere[name]) for name in wanted)
    document.append(content)
    _rename(document, prefix)
    defined = {element for definitions in document.iter(_DEFS) for element in definitions.iter()}
    for element in document.iter():
        if element.tag in _PAINTED and element not in defined and "fill:" not in element.get("style", ""):
            element.set("style", f"fill: #000000; {element.get('style', '')}")  # matplotlib leaves black out
        _repaint(element)
        _tidy(element)
        _classify(element, styles)
    _ungroup(document)
    ET.register_namespace("", _SVG)
    return ET.tostring(document, encoding="unicode")


def _references(content: ET.Element) -> Iterator[str]:
    """Ids that the elements refer to, as href="#id" or url(#id)."""
    for element in content.iter():
        for value in element.attrib.values():
            for one, other in re.findall(r"^#([\w-]+)$|url\(#([\w-]+)\)", value):
                yield one or other


def _rename(document: ET.Element, prefix: str) -> None:
    """Number the ids that something refers to, and drop the others: a page shows many figures, and an id is unique."""
    names = {name: f"{prefix}-{number}" for number, name in enumerate(dict.fromkeys(_references(document)))}
    for element in document.iter():
        for key, value in list(element.attrib.items()):
            if key == "id":
                del element.attrib[key]
                if value in names:
                    element.set("id", names[value])
            elif key == _LINK:
                del element.attrib[key]
                element.set("href", f"#{names[value[1:]]}")
            elif "url(#" in value:
                element.set(key, re.sub(r"url\(#([\w-]+)\)", lambda found: f"url(#{names[found[1]]})", value))


def _repaint(element: ET.Element) -> None:
    """Colours that the style sheet decides, the page's own font, and coordinates to a tenth of a point."""
    for key, value in element.attrib.items():
        if key == "style":
            value = re.sub(r"#[0-9a-f]{6}\b|\bwhite\b", lambda found: _THEME.get(found[0], found[0]), value.lower())
            value = re.sub(r"\s*font-family:[^;]*;?", "", re.sub(r"font:\s*([\d.]+px)[^;]*", r"font-size: \1", value))
            value = re.sub(r"stroke-linejoin: miter;?|stroke-dashoffset: 0;?", "", value)  # as they are anyway
            value = re.sub(r"\s*([:;])\s*", r"\1", value).strip("; ")
        elif key == "transform":
            value = re.sub(r"(\d\.\d\d)\d+", r"\1", value)
        elif key in ("d", "points", "x", "y", "width", "height", "viewBox"):
            value = re.sub(r"-?\d+\.\d+(?:e-?\d+)?", _tenths, value)
        if key == "d":
            value = re.sub(r"\s*([A-Za-z])\s*", r"\1", value)
        element.set(key, " ".join(value.split()))
    if element.tag == f"{{{_SVG}}}text" and "fill" not in (element.get("style") or ""):
        element.set("fill", "var(--ink)")


def _classify(element: ET.Element, styles: dict[str, str]) -> None:
    """Name what an element's style declares by a class; hundreds of elements of a figure look alike."""
    style = element.attrib.pop("style", "")
    if style:
        name = f"s{hashlib.sha256(style.encode()).hexdigest()[:5]}"
        element.set("class", name)
        styles[name] = style


def _tenths(found: re.Match[str]) -> str:
    """A number as it is written shortest, without a minus before zero."""
    return f"{round(float(found[0]), 1) + 0.0:g}"


def _ungroup(element: ET.Element) -> None:
    """Put what is inside of groups that say nothing in their place."""
    children = []
    for child in element:
        _ungroup(child)
        children += list(child) if child.tag == _GROUP and not child.attrib else [child]
    element[:] = children


def _tidy(element: ET.Element) -> None:
    """Without the white space that only sets the source of the document in lines, and turns by no angle."""
    if element.text is not None and not element.text.strip():
        element.text = None
    element.tail = None
    if (element.get("transform") or "").startswith("rotate(-0 "):
        del element.attrib["transform"]
