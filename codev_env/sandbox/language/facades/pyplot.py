"""Matplotlib's pyplot as programs see it, if installed: drawing, `show` and `savefig`."""

from __future__ import annotations

import functools
import importlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from codev_env.sandbox.language import guards, imaging, state
from codev_env.sandbox.language.facade import Facade, is_metaclass, pick
from codev_env.sandbox.language.refusals import RefusedCall, refuse

try:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.artist
    import matplotlib.cm
    import matplotlib.collections
    import matplotlib.colors
    import matplotlib.figure
    import matplotlib.font_manager
    import matplotlib.gridspec
    import matplotlib.image
    import matplotlib.lines
    import matplotlib.patches
    import matplotlib.patheffects
    import matplotlib.pyplot as plt
    import matplotlib.style
    import matplotlib.ticker
    from matplotlib import _mathtext
    from matplotlib.backends.backend_agg import FigureCanvasAgg
except ImportError:
    matplotlib = None  # type: ignore[assignment]

_MOST_DPI = 400.0
_FUNCTIONS = (
    "plot scatter bar barh hist hist2d pie boxplot violinplot errorbar fill fill_between step stem contour contourf "
    "imshow matshow pcolormesh quiver text annotate title suptitle xlabel ylabel xlim ylim xticks yticks xscale "
    "yscale axis axhline axvline axhspan axvspan hlines vlines legend grid colorbar figure subplot subplots "
    "subplots_adjust tight_layout gcf gca sca cla clf close axes tick_params arrow figtext setp get_cmap gray "
    "jet hot viridis twinx twiny clim rcParams Circle Rectangle Polygon ion ioff "
    "acorr autoscale autumn axline bar_label barbs bone box broken_barh clabel cohere color_sequences colormaps cool "
    "copper csd cycler delaxes draw ecdf eventplot figaspect figimage figlegend fignum_exists fill_betweenx flag gci "
    "get_fignums getp grouped_bar hexbin hsv inferno isinteractive locator_params loglog magma magnitude_spectrum "
    "margins minorticks_off minorticks_on nipy_spectral pcolor phase_spectrum pink plasma polar prism psd quiverkey "
    "rc rc_context rgrids sci semilogx semilogy set_cmap specgram spring spy stackplot stairs streamplot subplot2grid "
    "subplot_mosaic summer table thetagrids ticklabel_format tricontour tricontourf tripcolor triplot winter xcorr "
    "Annotation Arrow Artist Axes Colormap FixedFormatter FixedLocator FormatStrFormatter FuncFormatter GridSpec "
    "Line2D LinearLocator MaxNLocator MultipleLocator Normalize NullFormatter NullLocator ScalarFormatter Text"
)
_HINTS = {
    "imsave": "use Image.fromarray(array).save(name)",
    "pause": "nothing moves here: use plt.savefig or plt.show",
    "ginput": "nobody can click",
    "switch_backend": "there is one backend",
}
_SUBMODULES = "collections colors gridspec lines patches patheffects ticker"
LOOKS = frozenset("bbox_inches pad_inches facecolor edgecolor transparent".split())
"""Options of `savefig` that change what is drawn."""
_defaults: Any = {}
_draw_to_file: Any = None if matplotlib is None else matplotlib.figure.Figure.savefig
_fonts: dict[str, bytes] = {}


def _show(*_args: Any, **_kwargs: Any) -> None:
    """`plt.show()`: hands over every open figure, then closes them."""
    for number in plt.get_fignums():
        state.current().show(render(plt.figure(number)))
    plt.close("all")


def _savefig(fname: Any, *args: Any, **kwargs: Any) -> None:
    """`plt.savefig` into the episode's files."""
    _figure_savefig(plt.gcf(), fname, *args, **kwargs)


def _imsave(fname: Any, arr: Any, *, cmap: Any = None, vmin: Any = None, vmax: Any = None, **_other: Any) -> None:
    """`plt.imsave` into the episode's files; an array without colours is coloured by the colour map."""
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, np.asarray(arr), vmin=vmin, vmax=vmax, cmap=cmap, format="png")
    buffer.seek(0)
    image = Image.open(buffer)
    state.current().save(image.convert("RGB") if image.getextrema()[-1] == (255, 255) else image, fname)


def _figure_savefig(figure: Any, fname: Any, *_args: Any, dpi: Any = None, **kwargs: Any) -> None:
    image = render(figure, dpi, {name: value for name, value in kwargs.items() if name in LOOKS and value is not None})
    if isinstance(fname, io.BytesIO):
        image.save(fname, "PNG")
    else:
        state.current().save(image, fname)


def _agg(figure: Any) -> Any:
    """The canvas of a figure; one that was made without `pyplot` has none that draws."""
    return figure.canvas if hasattr(figure.canvas, "buffer_rgba") else FigureCanvasAgg(figure)


def render(figure: Any, dpi: Any = None, looks: Mapping[str, Any] | None = None) -> Image.Image:
    """Draw a figure as RGB pixels.

    Args:
        figure: The figure.
        dpi: Dots per inch; `None` for the figure's.
        looks: Options of `savefig` that change what is drawn, and where it is cut.
    """
    dots = figure.get_dpi() if dpi in (None, "figure") else min(float(dpi), _MOST_DPI)
    if looks:
        buffer = io.BytesIO()
        _draw_to_file(figure, buffer, format="png", dpi=dots, **looks)
        buffer.seek(0)
        return Image.open(buffer).convert("RGB")
    before = figure.get_dpi()
    figure.set_dpi(dots)
    canvas = _agg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    figure.set_dpi(before)
    return Image.fromarray(pixels).convert("RGB")


def _figure_pixels(thing: Any) -> Image.Image | None:
    """A figure, or the figure that an artist such as axes belongs to, as RGB pixels; `None` for any other object."""
    figure = thing.figure if isinstance(thing, matplotlib.artist.Artist) else None
    return render(figure) if isinstance(figure, matplotlib.figure.Figure) else None


def seed(_value: int, used: bool) -> None:
    """Discard the figures and settings of the last run."""
    if matplotlib is not None and used:
        plt.close("all")
        matplotlib.rcParams.update(_defaults)


def _use(*_args: Any, **_kwargs: Any) -> None:
    """`matplotlib.use`: the backend is always Agg here."""


def _imread(fname: Any, format: Any = None) -> np.ndarray:
    """`plt.imread` of the episode's files: from 0 to 1 for PNG, else from 0 to 255."""
    image = state.current().open(fname)
    pixels = np.array(image)
    return (pixels / np.float32(255)).astype(np.float32) if image.format in (None, "PNG") else pixels


def _use_style(style: Any) -> None:
    """`plt.style.use` of a style of Matplotlib, or of settings."""
    # Copies: an object of a class of the program may be something else after the check.
    given = list(style) if isinstance(style, list | tuple) else [style]
    style = [dict(one) if isinstance(one, dict) else str.__str__(one) for one in given]
    for one in style:
        if not isinstance(one, dict) and one != "default" and one not in matplotlib.style.library:
            raise OSError(f"there is no style {one!r}: {', '.join(matplotlib.style.available)}")
    matplotlib.style.use(style)


def modules() -> dict[str, Facade]:
    """The façades by import name; empty where Matplotlib is not installed."""
    if matplotlib is None:
        return {}
    matplotlib.figure.Figure.savefig = _figure_savefig  # type: ignore[assignment]
    _keep_in()
    imaging.CONVERTERS.append(_figure_pixels)
    guards.handle((matplotlib.figure.FigureBase,), "canvas", Canvas)
    maps = {name: getattr(matplotlib.cm, name) for name in matplotlib.colormaps if hasattr(matplotlib.cm, name)}
    cm = Facade("matplotlib.cm", {**maps, "get_cmap": plt.get_cmap, **pick(matplotlib.cm, "ScalarMappable")})
    style = Facade("matplotlib.style", {"use": _use_style, "available": list(matplotlib.style.available)})
    names = pick(plt, _FUNCTIONS)
    names.update(show=_show, savefig=_savefig, imsave=_imsave, imread=_imread)
    names.update(Figure=matplotlib.figure.Figure, cm=cm, style=style)
    found = {"pyplot": Facade("matplotlib.pyplot", names, _HINTS), "cm": cm, "style": style}
    for name in _SUBMODULES.split():
        found[name] = _drawing(getattr(matplotlib, name))
    found["figure"] = Facade("matplotlib.figure", {"Figure": matplotlib.figure.Figure})
    found["font_manager"] = Facade("matplotlib.font_manager", pick(matplotlib.font_manager, "FontProperties"))
    own = {"use": _use, "__version__": matplotlib.__version__, **pick(matplotlib, "rcParams colormaps rc")}
    found["image"] = Facade("matplotlib.image", {"imread": _imread, "imsave": _imsave})
    agg = Facade("matplotlib.backends.backend_agg", {"FigureCanvasAgg": _canvas, "FigureCanvas": _canvas})
    found["backends"] = Facade("matplotlib.backends", {"backend_agg": agg})
    package = Facade("matplotlib", {**found, **own})
    found["backends.backend_agg"] = agg
    return {"matplotlib": package, **{f"matplotlib.{name}": facade for name, facade in found.items()}, **_toolkits()}


def _keep_in() -> None:
    """Prevent Matplotlib from calling, importing or reading an object by a name in a text."""
    module: Any = plt
    module.importlib = _Patched(module.importlib, import_module=refuse("figure.hooks", "call the function"))
    module.figure = _only_figures(plt.figure)
    # Texts with fields read attributes: through the guard, as `str.format` of a program does.
    formatter: Any = matplotlib.ticker.StrMethodFormatter
    formatter.__call__ = lambda self, x, pos=None: _filled(self.fmt, x=x, pos=pos)
    matplotlib.cbook._auto_format_str = _auto_format
    guards.hide((matplotlib.backend_bases.RendererBase,), "get_texmanager")
    guards.hide((type(matplotlib.colormaps),), "register", "unregister")


def _only_figures(real: Any) -> Any:
    @functools.wraps(real)
    def figure(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("FigureClass", matplotlib.figure.Figure) is not matplotlib.figure.Figure:
            raise RefusedCall("figures have a class of their own here: leave FigureClass out.")
        return real(*args, **kwargs)

    return figure


def _filled(text: Any, *args: Any, **fields: Any) -> str:
    return guards.guarded_getattr(str.__str__(text), "format")(*args, **fields)


def _auto_format(fmt: Any, value: Any) -> str:
    """`matplotlib.cbook._auto_format_str`."""
    try:
        return str.__str__(fmt) % (value,)
    except (TypeError, ValueError):
        return _filled(fmt, value)


def _drawing(module: Any) -> Facade:
    """A façade of the classes and functions defined in a module, and of its tables of colours."""
    names = {}
    for name, value in vars(module).items():
        own = callable(value) and getattr(value, "__module__", None) == module.__name__ and not is_metaclass(value)
        if not name.startswith("_") and (own or (name.isupper() and isinstance(value, dict))):
            names[name] = value
    return Facade(module.__name__, names)


def _toolkits() -> dict[str, Facade]:
    try:
        from mpl_toolkits import axes_grid1, mplot3d
        from mpl_toolkits.axes_grid1 import inset_locator
    except ImportError:
        return {}
    insets = {name: _inset(getattr(inset_locator, name)) for name in ("inset_axes", "zoomed_inset_axes")}
    inset = Facade("mpl_toolkits.axes_grid1.inset_locator", {**insets, **pick(inset_locator, "mark_inset")})
    parts = pick(axes_grid1, "make_axes_locatable ImageGrid")
    grid = Facade("mpl_toolkits.axes_grid1", {**parts, "inset_locator": inset})
    solid = Facade("mpl_toolkits.mplot3d", pick(mplot3d, "Axes3D"))
    package = Facade("mpl_toolkits", {"axes_grid1": grid, "mplot3d": solid})
    found = {"axes_grid1": grid, "axes_grid1.inset_locator": inset, "mplot3d": solid}
    return {"mpl_toolkits": package, **{f"mpl_toolkits.{name}": facade for name, facade in found.items()}}


def _inset(real: Any) -> Any:
    """A function that makes an inset, whose axes are as those of `pyplot`."""

    @functools.wraps(real)
    def inset(*args: Any, axes_class: Any = None, **kwargs: Any) -> Any:
        if axes_class is not None:
            raise RefusedCall("axes have a class of their own here: leave axes_class out.")
        return real(*args, axes_class=matplotlib.axes.Axes, **kwargs)

    return inset


class Canvas:
    """`figure.canvas`: the pixels of a figure."""

    __module__ = "matplotlib.backends"

    def __init__(self, figure: Any) -> None:
        self._figure = figure
        self.figure = figure

    def draw(self, *_args: Any) -> None:
        """Draw the figure."""
        _agg(self._figure).draw()

    draw_idle = flush_events = draw

    def buffer_rgba(self) -> memoryview:
        """The pixels, height x width x 4, drawn if they are not yet."""
        canvas = _agg(self._figure)
        canvas.draw()
        return memoryview(np.array(canvas.buffer_rgba()))  # type: ignore[arg-type]

    def tostring_rgb(self) -> bytes:
        """The pixels as bytes, red, green and blue."""
        return np.asarray(self.buffer_rgba())[:, :, :3].tobytes()

    def tostring_argb(self) -> bytes:
        """The pixels as bytes, alpha first."""
        return np.asarray(self.buffer_rgba())[:, :, [3, 0, 1, 2]].tobytes()

    def get_width_height(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._figure.canvas.get_width_height()

    def print_png(self, file: Any, *_args: Any, **_kwargs: Any) -> None:
        """Save the figure."""
        _figure_savefig(self._figure, file)

    print_figure = print_jpg = print_png

    def get_renderer(self, *_args: Any) -> Canvas:
        """The canvas itself, which has the pixels too."""
        return self


def _canvas(figure: Any) -> Canvas:
    """`FigureCanvasAgg`."""
    if not isinstance(figure, matplotlib.figure.Figure):
        raise TypeError("a canvas needs a figure")
    return Canvas(figure)


class _Patched:
    """A module with some names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self.__dict__[" module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__[" module"], name)


def _fonts_in_memory() -> None:
    """Read the fonts of Matplotlib now: workers cannot open files, and a fork empties Matplotlib's font cache."""
    manager: Any = matplotlib.font_manager
    for path in (Path(matplotlib.get_data_path()) / "fonts" / "ttf").glob("*.ttf"):
        # A worker cannot resolve links, so the path as Matplotlib has it must do as well.
        _fonts[os.path.realpath(path)] = _fonts[str(path)] = path.read_bytes()
    own = [font for font in manager.fontManager.ttflist if os.path.realpath(font.fname) in _fonts]
    manager.fontManager.ttflist = own
    real = manager.ft2font

    def open_font(path: Any, *args: Any, **kwargs: Any) -> Any:
        data = _fonts.get(_plain(path)) if isinstance(path, str | os.PathLike) else None
        return real.FT2Font(path if data is None else io.BytesIO(data), *args, **kwargs)

    def exists(path: Any) -> bool:
        return _plain(path) in _fonts

    manager.ft2font = _Patched(real, FT2Font=open_font)
    paths = _Patched(os.path, isfile=exists, exists=exists)
    modules: tuple[Any, ...] = (manager, _mathtext)
    for module in modules:
        module.os = _Patched(os, path=paths)


def _plain(path: Any) -> str:
    return str.__str__(os.fspath(path))  # Matplotlib has a class of its own, whose hash needs the path again


def warm() -> None:
    """Draw once, so that fonts and everything that Matplotlib loads lazily are loaded."""
    global _defaults
    if matplotlib is None:
        return
    _fonts_in_memory()
    qhull: Any = importlib.import_module("matplotlib._qhull")
    delaunay = qhull.delaunay
    qhull.delaunay = lambda x, y, _verbose: delaunay(x, y, True)  # it would open a file to hide messages in
    figure, ((one, two), (three, four)) = plt.subplots(2, 2)
    one.plot([1, 2], label="$a^2$")
    one.set_title("a")
    one.legend()
    figure.colorbar(two.imshow([[0, 1], [1, 0]]))
    three.hist([1, 2, 2])
    three.scatter([1], [2], c=[1])
    four.bar(["a", "b"], [1, -2])
    four.annotate("a", (0, 0), (1, 1), arrowprops={"arrowstyle": "->"})
    four.contourf([[0, 1], [1, 0]])
    four.tricontourf([0, 1, 1], [0, 0, 1], [1, 2, 3])
    figure.tight_layout()
    render(figure)
    render(figure, looks={"bbox_inches": "tight"})
    for projection in ("polar", "3d"):
        plt.figure().add_subplot(projection=projection).plot([1, 2], [3, 4])
        render(plt.gcf())
    plt.close("all")
    _defaults = matplotlib.rcParams.copy()
