"""A page for each layer in layers/, from its docstring, with pictures of its matrix."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import torch
from docstrings import to_markdown
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from repository import GENERATED, write_if_changed
from sphinx.application import Sphinx

from harness.cli.list import docstring_fields
from layers import LAYERS, InvertibleLinear, UnsupportedShape, layer_options

SHAPES = {"image": (2, 4, 4), "sequence": (2, 16)}
FIVE = ("conv1x1", "emerging", "periodic", "woodbury", "butterfly")
SPREAD = 0.3  # of the normal numbers that are added to the initial weights, so that every free entry is seen
FOLDER = GENERATED / "layers"


def moved(cls: type[InvertibleLinear], shape: tuple[int, ...]) -> InvertibleLinear:
    """Return a layer with weights away from its initial ones."""
    torch.manual_seed(0)
    layer = cls(shape).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += SPREAD * torch.randn_like(parameter)
    return layer


def draw(cls: type[InvertibleLinear], path: Path) -> list[str]:
    """Draw the matrix of a layer on each shape; return the reasons why it refused one."""
    refused, panels = [], []
    for noun, shape in SHAPES.items():
        try:
            panels.append((f"{noun} {'x'.join(map(str, shape))}", moved(cls, shape).dense().detach()))
        except UnsupportedShape as error:
            refused.append(str(error))
    figure = Figure(figsize=(3.2 * len(panels), 3.4), layout="constrained")
    for axes, (title, matrix) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        show_matrix(axes, title, matrix)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)
    return refused


def draw_five(path: Path) -> None:
    """Draw the matrices of the five layers of the default comparison on the image, side by side."""
    figure = Figure(figsize=(2.2 * len(FIVE), 2.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(FIVE)), FIVE, strict=True):
        show_matrix(axes, name, moved(LAYERS[name], SHAPES["image"]).dense().detach())
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Save a figure with everything on it: the layout ends at the axes, and cuts the titles of square ones."""
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})


def show_matrix(axes: Axes, title: str, matrix: torch.Tensor) -> None:
    """Show a matrix by the sign and the cube root of its entries, zeros blank."""
    matrix = matrix.where(matrix.abs() > 1e-9, torch.nan)
    shown = matrix.sign() * matrix.abs().pow(1 / 3)
    bound = shown.nan_to_num().abs().max()
    axes.imshow(shown.numpy(), cmap=matplotlib.colormaps["PuOr"], vmin=-bound, vmax=bound, interpolation="nearest")
    axes.set_title(title, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])


def layer_page(name: str, cls: type[InvertibleLinear]) -> str:
    """Return the page of a layer."""
    options = ", ".join(f"`{option}`" for option in layer_options(cls))
    refused = draw(cls, FOLDER / f"{name}.png")
    lines = [
        f"# {name}",
        f"![Matrices of {name}]({name}.png)",
        "*W on an image and on a sequence of 32 entries, in row-major order, with default options, and weights moved "
        "at random from their initial values. Colour: sign and cube root of an entry; blank: zero.*",
        *(f"Not drawn: {reason}" for reason in refused),
        f"Class `{cls.__module__}.{cls.__qualname__}`; options: {options or 'none'}.",
        to_markdown(cls.__doc__ or ""),
    ]
    return "\n\n".join(lines) + "\n"


def overview() -> Iterator[str]:
    """Yield the lines of the table of all layers."""
    yield from ("| layer | matrix | family | in one sentence |", "|---|---|---|---|")
    for name, cls in sorted(LAYERS.items()):
        text = inspect.cleandoc(cls.__doc__ or "")
        family = docstring_fields(text).get("Family", "")
        picture = f"![Matrices of {name}](/generated/layers/{name}.png){{width=150px}}"
        sentence = text.partition("\n")[0].replace("|", r"\|")
        cells = (f"[{name}](/generated/layers/{name}.md)", picture, family, sentence)
        yield f"| {' | '.join(cells)} |"


def write_gallery(app: Sphinx) -> None:
    """Write the pages and the table."""
    for name, cls in LAYERS.items():
        write_if_changed(FOLDER / f"{name}.md", layer_page(name, cls))
    draw_five(FOLDER / "five.png")
    for page in FOLDER.glob("*.md"):
        if page.stem not in LAYERS:
            page.unlink()
    write_if_changed(GENERATED / "layers.inc.md", "\n".join(overview()) + "\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step."""
    app.connect("builder-inited", write_gallery)
    return {"parallel_read_safe": True}
