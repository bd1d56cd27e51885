"""The chart's labels."""

from __future__ import annotations

from itertools import combinations

import matplotlib as mpl
import pytest

from magnetar.demo.report import _label

PLACES = {
    name: (latitude, longitude, 100 - number, 9000)
    for number, (name, latitude, longitude) in enumerate(
        [
            ("DCA", 38.85, -77.04),
            ("IAD", 38.94, -77.46),
            ("BWI", 39.18, -76.67),
            ("FLL", 26.07, -80.15),
            ("MIA", 25.79, -80.29),
            ("PHL", 39.87, -75.24),
            ("SFO", 37.62, -122.37),
        ]
    )
}


@pytest.mark.leaves("matplotlib keeps its font open")
def test_names_do_not_cover_each_other() -> None:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    axes.set_xlim(-125, -70)
    axes.set_ylim(25, 43)
    figure.canvas.draw()
    _label(axes, PLACES)
    boxes = [note.get_window_extent() for note in axes.texts]
    assert len(boxes) >= 6, "a name that finds no room is left out, others are not"
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    plt.close(figure)
