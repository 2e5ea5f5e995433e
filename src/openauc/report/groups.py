"""The page on which a person looks at groups of rejected rows, names them, and saves ``labels.csv``."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from openauc._columns import is_empty
from openauc._validation import check_same_length
from openauc.report.page import render

if TYPE_CHECKING:
    from openauc.features.classifier.discovery import Groups

MOST_ROWS = 200  # of a group that the page can show
ALL_ROWS = 4000  # of all groups together, which bounds the size of the page
FEWEST_ROWS = 12
LETTERS = 240  # of a text that the page shows
_KINDS = {b"\x89PNG": "png", b"\xff\xd8": "jpeg"}


def groups_report(
    groups: Groups,
    *,
    name: str = "model",
    classes: Sequence[Any],
    unknown_label: Any = "unknown",
    captions: ArrayLike | None = None,
    images: Mapping[int, bytes] | None = None,
    rows_name: str = "rows.parquet",
    model: str = "MODEL",
    folder: str = "groups",
    command: str = "",
) -> str:
    """A self-contained HTML page to name groups of rejected rows.

    It saves ``labels.csv``, with a line ``row,group,label,note,text`` for each row that was named or taken out. Texts
    that the page does not hold in full are left empty there.

    Parameters
    ----------
    name
        Name of the model.
    classes
        Known classes.
    unknown_label
        Answer of the model for no class; the page refuses it as a name.
    captions
        (n,) text of each row of X, such as its file name; None shows the number of the row.
    images
        Row -> PNG or JPEG of its thumbnail.
    rows_name, folder
        File and folder of the rejected rows, where ``labels.csv`` belongs.
    model
        Path of the model, for the next command.
    command
        How the page was made, shown at its end.
    """
    most = max(FEWEST_ROWS, min(MOST_ROWS, ALL_ROWS // max(len(groups.groups), 1)))
    texts = None if captions is None else np.asarray(captions, dtype=object)
    if texts is not None:
        check_same_length(labels=groups.labels, captions=texts)
    shown = [group.rows[:most].tolist() for group in groups.groups]
    data = {
        "groups": [
            {
                "rows": group.rows.tolist(),
                "texts": [] if texts is None else [cut(texts[row]) for row in rows],
            }
            for group, rows in zip(groups.groups, shown, strict=True)
        ],
        "most": most,
        "letters": LETTERS,
        "classes": [str(label) for label in classes],
        "unknown": str(unknown_label),
        "images": {row: image_address(images[row], f"row {row}") for rows in shown for row in rows if row in images}
        if images
        else {},
    }
    return render(
        "groups",
        {**data, "key": f"openauc groups {hashlib.sha256(repr(data).encode()).hexdigest()}"},
        groups=groups,
        name=name,
        rows_name=rows_name,
        folder=folder,
        next_command=shlex.join(["openauc", "extend", model, f"{folder}/labels.csv", "-o", "MODEL2"]),
        command=command,
    )


def cut(caption: Any) -> str:
    """The text of a row for a page; one letter more than is shown tells that it is longer."""
    return "" if is_empty(caption) else str(caption)[: LETTERS + 1]


def image_address(image: bytes, of: str) -> str:
    """A PNG or JPEG as the address of an image; ``of`` names its row in errors."""
    kind = next((kind for start, kind in _KINDS.items() if image.startswith(start)), None)
    if kind is None:
        raise ValueError(f"the image of {of} is neither PNG nor JPEG; convert it to one of them.")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
