"""Run the examples that draw, and keep their pictures for the gallery: ``python docs/gallery.py``.

It takes about a minute on two cores. Needs Matplotlib, and SciPy for the forecast.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parent
PICTURES = {
    "19_mandelbrot": ["mandelbrot.png"],
    "20_reaction": ["reaction.png"],
    "23_nbody": ["nbody.png"],
    "25_waves": ["waves.png"],
    "27_weather": ["weather.png"],
    "gp_cholesky": ["fit.png", "timeline.png"],
}
WIDTH = 720


def main() -> None:
    target = DOCS / "pictures" / "gallery"
    target.mkdir(parents=True, exist_ok=True)
    source = os.pathsep.join([str(DOCS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": source, "STF_DEVICES": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        for example, names in PICTURES.items():
            program = DOCS.parent / "examples" / f"{example}.py"
            subprocess.run(
                [sys.executable, program, "--out", folder], env=environment, check=True, stdout=subprocess.DEVNULL
            )
            for name in names:
                picture = Image.open(Path(folder, name)).convert("RGB")
                if picture.width > WIDTH:
                    picture = picture.resize((WIDTH, picture.height * WIDTH // picture.width), Image.Resampling.LANCZOS)
                picture.save(target / Path(name).with_suffix(".webp"), quality=80, method=6)


if __name__ == "__main__":
    main()
