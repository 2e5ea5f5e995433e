"""``openauc embed``: features of texts or images from a pretrained encoder, or from a training."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from openauc._trial_files import WEIGHTS
from openauc.commands.progress import progress_bar
from openauc.commands.shards import SHARDS_HELP, Jobs, OnRay, RayAddress, over_shards, refuse_at_scale
from openauc.commands.terminal import say
from openauc.commands.train import DataRoot, MethodName, Settings, SplitIndex, assignments, require_torch
from openauc.executors import executor
from openauc.protocols.base import Part
from openauc.shards.paths import is_pattern

if TYPE_CHECKING:
    from openauc.encoders import Encoder

SOURCE_HELP = "A folder of images, a .csv or .parquet file of texts, images or their paths, or a protocol."


def embed(
    source: Annotated[str, Argument(metavar="SOURCE", help=f"{SOURCE_HELP} {SHARDS_HELP}")],
    encoder: Annotated[
        str, Option("--encoder", "-e", help="See `openauc list encoders`, or the folder of a training.")
    ],
    out: Annotated[
        str, Option("--out", "-o", metavar="FILE|FOLDER", help="File to write: .parquet or .npz; of shards, a folder.")
    ] = "features.parquet",
    text_column: Annotated[str | None, Option(help="Column of the texts; else `text`, or a likely one.")] = None,
    split: SplitIndex = 0,
    part: Annotated[Part, Option(help="Part of a protocol.")] = "test",
    validation: Annotated[float, Option(help="Share of each class in a protocol's validation part.")] = 0.0,
    data_root: DataRoot = None,
    device: Annotated[str | None, Option(help="Such as cpu, cuda or mps; else the fastest there is.")] = None,
    batch_size: Annotated[int | None, Option(min=1, help="Texts or images at a time.")] = None,
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out rows, images and shards that cannot be read, and name them.")
    ] = False,
    method: MethodName = "openauc",
    set_: Settings = None,
    jobs: Jobs = None,
    ray: OnRay = False,
    ray_address: RayAddress = None,
) -> None:
    """Turn texts or images into embeddings.

    If the command was stopped, the same command goes on from there. The file has all columns of SOURCE except pixels,
    and a column `embedding`. For images in folders, it has the file of each image and, as its label, the name of its
    folder; for a protocol, the class or unknown.

    With shards, --out names a folder, which gets one Parquet file for each shard. A shard is embedded again only if it
    or the encoder has changed.

    If --encoder is a training with a method or a backbone from outside openauc, name it again with --method or --set.
    """
    from openauc.encoders.base import need
    from openauc.encoders.inputs import open_items
    from openauc.encoders.output import parts_file, write_embeddings
    from openauc.encoders.registry import encoder_kind, get_encoder, refuse_other_kind

    need("pyarrow", "`openauc embed`")
    run = Path(encoder) if Path(encoder).is_dir() else None
    trusted = (method, str(assignments("--set", set_).get("backbone"))) if run else ()
    if is_pattern(source):
        from openauc.encoders.shards import Embedding

        name, of_training = (os.path.abspath(run), _encoder_of) if run else (encoder, None)
        step = Embedding(name, device, batch_size, text_column, skip_bad, trusted, of_training)
        step.wanted()  # raises before the work
        over_shards(source, step, out, executor(jobs, ray, ray_address), skip_bad=skip_bad)
        return
    refuse_at_scale(jobs=jobs, ray=ray, ray_address=ray_address)
    file = Path(out)
    if file.suffix.lower() not in (".parquet", ".npz"):
        raise ValueError(f"{out} has the suffix {file.suffix!r}; expected .parquet or .npz, as text is large and slow.")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"cannot write {out}: the folder {file.parent} does not exist; create it first.")
    opened = open_items(
        source,
        wanted="image" if run else encoder_kind(encoder),
        text_column=text_column,
        split=split,
        part=part,
        validation=validation,
        data_root=data_root,
        skip_bad=skip_bad,
    )
    if run is None:
        network = get_encoder(encoder, device, kind=opened.kind, batch_size=batch_size)
    else:
        refuse_other_kind(encoder, "image", opened.kind)
        network = _encoder_of(run, device, batch_size, trusted)
    try:
        with progress_bar("texts" if opened.kind == "text" else "images") as on_progress:
            skipped = write_embeddings(opened, network, file, skip_bad=skip_bad, on_progress=on_progress)
    except KeyboardInterrupt:
        say(f"stopped; the same command goes on with what is done, in {parts_file(file)}.", err=True)
        raise Exit(130) from None
    for sentence in skipped:
        say(f"skipped: {sentence}", err=True)
    rows = len(opened) + len(opened.skipped)
    said = f" {len(skipped):,} of {rows:,} rows were skipped." if skipped else ""
    say(f"{rows - len(skipped):,} embeddings of {network.width} features in {out}.{said}")


def _encoder_of(run: Path, device: str | None, batch_size: int | None, trusted: Collection[str]) -> Encoder:
    """The network of a training, which sees images as it saw those it was trained on."""
    require_torch("the network of a training")
    import numpy as np

    from openauc.encoders.base import Encoder, choose_device
    from openauc.protocols.sources import LazyImages
    from openauc.training.predict import embed_images
    from openauc.training.trained import SavedRun

    saved = SavedRun(run, trusted=trusted)
    recipe, method = saved.spec.network_recipe, saved.train()
    if device is not None:
        method.to(choose_device(device))

    def encode(items: list[Any]) -> Any:
        lazy = not isinstance(items[0], np.ndarray)
        images = LazyImages(items, recipe.image_size) if lazy else np.stack(items)
        return embed_images(method, images, recipe, batch_size=batch_size)[0]

    # Making a network ready takes longer than a batch does, so it gets many of them at a time.
    return Encoder(str(run), "image", encode, batch_size=256, weights=run / WEIGHTS)
