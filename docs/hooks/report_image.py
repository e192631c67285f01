"""Make docs/images/report.png and report-dark.png, the top of a run's report and one of its episodes, with Chromium.

    $ python docs/hooks/report_image.py runs/tiny

The task is the first that was answered without a look before training and with one after it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

IMAGES = Path(__file__).parents[1] / "images"
WIDTH, HEIGHT = 1120, 2400
HIDDEN = "nav, .leads, #training, #time, #settings, #episodes > :not(.task), .groups, .slide, details, .results ~ .note"


def main(run: str) -> None:
    """Write both images from the report in a run's folder."""
    page = (Path(run) / "report.html").read_text("utf-8")
    tasks = re.findall(r'<section class="task".*?</section>', page, re.DOTALL)
    looks = re.compile(r'data-faithful="(\d)"')
    chosen = next(number for number, task in enumerate(tasks, 1) if looks.findall(task)[:2] == ["0", "1"])
    # The heading is the section's first child, so the tasks are counted from behind.
    style = f"{HIDDEN}, .results > .note, .task:not(:nth-last-child({len(tasks) - chosen + 1})) {{ display: none }}"
    style += " footer { display: none } .task { content-visibility: visible; margin-top: 1rem }"
    page = page.replace("</style>", f"{style}</style>", 1)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(page, "utf-8")
        for name, scheme in (("report.png", 1), ("report-dark.png", 0)):
            shot = Path(folder) / name
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=2000"]
            options += [f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={WIDTH},{HEIGHT}"]
            command = [chromium, *options, f"--screenshot={shot}", file.as_uri()]
            subprocess.run(command, check=True, capture_output=True)
            _trimmed(Image.open(shot).convert("RGB")).quantize(256).save(IMAGES / name, optimize=True)


def _trimmed(image: Image.Image) -> Image.Image:
    """Cut off the empty rows at the bottom."""
    paper = image.getpixel((2, image.height - 2))
    empty = Image.new("RGB", image.size, paper)
    from PIL import ImageChops

    box = ImageChops.difference(image, empty).getbbox()
    assert box is not None
    return image.crop((0, 0, image.width, min(image.height, box[3] + 16)))


if __name__ == "__main__":
    main(*sys.argv[1:])
