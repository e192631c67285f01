"""Images: scaled, stored once, boxes in pixels of the original."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from eval_samples import markup
from PIL import Image

from codev_env.errors import TrajectoryError
from codev_env.messages import png_data_url
from codev_env.trajectory import Trajectory, read_trajectories, write_trajectories
from codev_eval.report.images import ImageStore, Mark, draw, scaled


def stored(store: ImageStore) -> list[tuple[str, int, int, Image.Image]]:
    found = re.findall(
        r'<image id="(\w+)" width="(\d+)" height="(\d+)"[^>]* href="data:image/\w+;base64,([^"]+)"',
        markup("images", "store", store.elements()),
    )
    return [(i, int(w), int(h), Image.open(io.BytesIO(base64.b64decode(data)))) for i, w, h, data in found]


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_equal_images_are_stored_once_and_others_apart():
    store = ImageStore()
    handles = [store.add([noise(60, 40, seed)]) for seed in (0, 0, 1)]
    assert len(stored(store)) == 2
    assert all(markup("images", "store", store.elements()).count(f'id="{handle.key}"') == 1 for handle in handles)


@pytest.mark.parametrize("pixels", [noise(50, 40), Image.new("RGB", (50, 40), "navy")], ids=["noise", "flat"])
def test_an_image_is_encoded_in_several_threads_at_once(pixels, tmp_path):
    """Pillow's `save` keeps its options in the image: another thread's would be used, or fail."""
    before = dict(vars(pixels))
    store = ImageStore()
    store.add([pixels])
    store.elements()
    png_data_url(pixels)
    write_trajectories(tmp_path, [Trajectory("t", images=(pixels,))])
    assert vars(pixels) == before


def test_files_are_stored_once_too_in_whatever_folder_they_lie(tmp_path):
    found = []
    for name in "ab":
        write_trajectories(tmp_path / name, [Trajectory("t", images=(noise(900, 600), noise(30, 30)))])
        found.append(read_trajectories(tmp_path / name)[0].images)
    store = ImageStore()
    assert store.add(found[0]) == store.add(found[0]) != store.add(found[1])
    store.add(found[1], 1)
    assert [image.size for *_, image in stored(store)] == [(450, 300), (30, 30)]


def test_a_file_that_is_gone_is_named(tmp_path):
    write_trajectories(tmp_path, [Trajectory("t", images=(noise(9, 9),))])
    images = read_trajectories(tmp_path)[0].images
    next(tmp_path.glob("images/*.png")).unlink()
    store = ImageStore()
    store.add(images)
    with pytest.raises(TrajectoryError, match="cannot read image"):
        store.elements()


def test_a_large_image_is_scaled_but_keeps_its_coordinates():
    store = ImageStore(max_width=480)
    handle = store.add([noise(1920, 1080)])
    ((_, width, height, image),) = stored(store)
    assert (handle.width, handle.height) == (width, height) == (1920, 1080)
    assert image.size == (480, 270)


@pytest.mark.parametrize(
    ("width", "height", "size"), [(672, 672, (224, 224)), (300, 150, (256, 128)), (2250, 1500, (250, 167))]
)
def test_a_whole_number_scales_where_it_loses_little(width, height, size):
    assert scaled(noise(width, height), 256).size == size


def test_a_very_tall_image_is_scaled_too():
    store = ImageStore(max_width=100)
    store.add([noise(10, 4000)])
    assert stored(store)[0][3].size == (1, 400)


def test_flat_colours_become_png_exactly_and_noise_jpeg():
    store = ImageStore()
    flat = Image.new("RGB", (200, 200), (12, 200, 7))
    store.add([flat])
    store.add([noise(200, 200)])
    (_, _, _, first), (_, _, _, second) = stored(store)
    assert first.format == "PNG" and first.convert("RGB").tobytes() == flat.tobytes()
    assert second.format == "JPEG"


def test_boxes_are_drawn_in_pixels_of_the_original():
    store = ImageStore()
    marks = [Mark("target", (10, 20, 110, 70)), Mark("crop", (0, 0, 5, 5), "3")]
    svg = markup("images", "drawing", draw(store.add([noise(800, 600)]), 'a "quoted" <name>', marks))
    assert 'viewBox="0 0 800 600"' in svg and 'aria-label="a &#34;quoted&#34; &lt;name&gt;"' in svg
    assert '<rect class="line" x="10" y="20" width="100" height="50"/>' in svg
    assert re.search(r'class="mark crop".*>3</text>', svg)


@pytest.mark.parametrize("box", [(40, 300, 60, 320), (0, 0, 30, 20), (770, 580, 800, 600), (0, 0, 800, 30)])
def test_the_tag_does_not_hide_what_a_small_box_marks(box):
    store = ImageStore()
    svg = markup("images", "drawing", draw(store.add([noise(800, 600)]), "x", [Mark("crop", box, "1")]))
    tag = re.search(r'class="tag" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    assert tag is not None
    x, y, w, h = map(float, tag.groups())
    assert 0 <= x and x + w <= 800 and 0 <= y and y + h <= 600
    assert y + h <= box[1] or y >= box[3]
