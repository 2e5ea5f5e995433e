"""What `openauc embed` and `openauc predict` do with each shard: embeddings, and decisions of a model."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from openauc._columns import Columns, arrow_columns, import_pyarrow, is_empty, read_about, read_columns, suffix_of
from openauc._files import PathLike
from openauc._trial_files import WEIGHTS
from openauc.encoders.base import Encoder, Kind
from openauc.encoders.inputs import EMBEDDING, Items, choose_cells, image_columns, items_of_cells, read_table
from openauc.encoders.output import about_embeddings, embed_table, with_embeddings
from openauc.encoders.prepare import holds_items
from openauc.encoders.registry import encoder_kind, get_encoder, refuse_other_kind
from openauc.features.classifier import tables
from openauc.protocols.sources import EncodedImage
from openauc.shards.mapping import Piece
from openauc.shards.paths import Shard
from openauc.shards.reading import read_tables

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier


@dataclass(frozen=True)
class Embedding:
    """Puts embeddings beside the columns of a shard with texts, images or their paths."""

    encoder: str
    device: str | None = None
    batch_size: int | None = None
    text_column: str | None = None
    skip_bad: bool = False
    """Leave out rows and images that cannot be read."""
    trusted: tuple[str, ...] = ()
    of_training: Callable[[Path, str | None, int | None, Collection[str]], Encoder] | None = None
    """Makes the encoder if it is the folder of a training, which may ask for code that is ``trusted``."""

    kind = "embeddings"

    def load(self, kind: Kind | None) -> Encoder:
        """The encoder, for texts or for images."""
        if self.of_training is None:
            return get_encoder(self.encoder, self.device, kind=kind, batch_size=self.batch_size)
        refuse_other_kind(self.encoder, "image", kind)
        return self.of_training(Path(self.encoder), self.device, self.batch_size, self.trusted)

    def wanted(self) -> Kind | None:
        """Whether the encoder is for texts or images, if that is known before it is loaded."""
        return encoder_kind(self.encoder) if self.of_training is None else "image"

    def fingerprint(self) -> str:
        files = _files_of(self.encoder)
        marks = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return json.dumps([self.encoder, marks, self.text_column])

    def about(self, schema: Any) -> Mapping[str, str]:
        return about_embeddings(self.encoder, schema.field(EMBEDDING).type.list_size)

    def __call__(self, shard: Shard) -> Iterator[Piece]:
        cells, start, path = None, 0, Path(shard.path)
        for table, share in _tables_of(shard):
            pictures = image_columns(table.schema)
            columns = table.select([name for name in table.column_names if name not in pictures])
            if EMBEDDING in columns.column_names:
                raise ValueError(f"{path} has a column {EMBEDDING!r} already; rename it, or use it as it is.")
            if pictures and "file" not in columns.column_names:
                columns = columns.append_column("file", table.column(pictures[0]).combine_chunks().field("path"))
            if not len(table):
                width = _encoder(self, self.wanted()).width
                yield Piece(with_embeddings(columns, np.empty((0, width), np.float32)), share)
                return
            cells = cells or choose_cells(path, columns, pictures, self.wanted(), self.text_column)
            if cells.hold == "image":
                contents = table.column(cells.column).combine_chunks().field("bytes").to_pylist()
                images = [EncodedImage(path, row, content or b"") for row, content in enumerate(contents, start)]
                items = Items("image", columns, partial(iter, images))
            else:
                items = items_of_cells(path, columns, cells, skip_bad=self.skip_bad, start=start)
            found, left_out = embed_table(items, _encoder(self, items.kind), skip_bad=self.skip_bad)
            yield Piece(found, share, left_out=left_out)
            start += len(table)


@dataclass(frozen=True)
class Deciding:
    """Puts the decisions of a model beside the columns of a shard; texts and images are embedded first."""

    model: str
    """Folder of the model."""
    mark: str
    """What :func:`model_mark` says of it."""
    label_column: str | None = None
    embedding_column: str | None = None

    kind = "decisions"

    def fingerprint(self) -> str:
        return json.dumps([self.mark, self.label_column, self.embedding_column])

    def about(self, schema: Any) -> Mapping[str, str]:
        return {"promise": tables.guarantee_of(_classifier(self)).to_json()}

    def __call__(self, shard: Shard) -> Iterator[Piece]:
        classifier = _classifier(self)
        labelled, dropped, start = None, 0, 0
        for rows in self._rows(shard, classifier):
            try:
                table = self._table(shard, rows, classifier)
                if labelled is None:
                    labelled = _all_labelled(shard, table)
                yield _decided(table, rows, classifier, labelled=labelled)
            except (ValueError, TypeError) as error:
                where = f"{shard.path}, in the rows from {start:,} on: " if start else ""
                raise ValueError(f"{where}{error}") from None
            dropped, start = dropped + table.dropped, start + len(table.features) + table.dropped
        if dropped:
            left_out = f"{shard.path}: {dropped:,} rows have empty cells and are left out"
            warnings.warn(f"{left_out}, as when {self.model} was fitted.", stacklevel=2)

    def _rows(self, shard: Shard, classifier: OpenSetClassifier) -> Iterator[_Rows]:
        spec, suffix = classifier.table_spec_, suffix_of(shard.path)
        if suffix == ".npz":
            with shard.copied() as path:
                yield _Rows(read_columns(path), 1.0, encoder=read_about(path).get("encoder"))
            return
        schema = next(_tables_of(shard))[0].schema
        if self.embedding_column is None and holds_items(schema, spec, classifier.n_features_in_):
            if spec.encoder is None:
                why = f"{shard.path} holds no embeddings, and {self.model} does not know which encoder made those"
                raise ValueError(f"{why} it was fitted on; make them with `openauc embed`, and name them instead.")
            for piece in Embedding(spec.encoder)(shard):
                yield _Rows(arrow_columns(piece.table, shard.path), piece.share, piece.table, spec.encoder)
        elif suffix == ".csv":
            with shard.copied() as path:
                yield _Rows(read_columns(path, gaps=True), 1.0)
        else:
            encoder = (schema.metadata or {}).get(b"openauc.encoder", b"").decode() or None
            for table, share in read_tables(shard):
                yield _Rows(arrow_columns(table, shard.path), share, table, encoder)

    def _table(self, shard: Shard, rows: _Rows, classifier: OpenSetClassifier) -> tables.FeatureTable:
        path, spec, columns = Path(shard.path), classifier.table_spec_, rows.columns
        if rows.arrow is not None and not len(rows.arrow):
            features = np.empty((0, classifier.n_features_in_), classifier.dtype_)
            label = tables.find_label(path, columns, self.label_column, spec)
            nested = [column.name for column in rows.arrow.schema if column.type.num_fields]
            others = {name: values for name, values in columns.items() if name not in (*spec.features, *nested)}
            return tables.FeatureTable(path, features, others, replace(spec, label=label))
        found = tables.read_table(
            path, embedding_column=self.embedding_column, label_column=self.label_column, like=spec, columns=columns
        )
        found = replace(found, spec=replace(found.spec, encoder=rows.encoder))
        check_like(found, self.model, classifier)
        return found


class _Rows(NamedTuple):
    """Some rows of a shard."""

    columns: Columns
    share: float
    arrow: Any = None
    """The same as an Arrow table, unless they are of a file that Arrow did not read."""
    encoder: str | None = None
    """That made their embeddings, if the file says so."""


def check_like(table: tables.FeatureTable, model: PathLike, classifier: OpenSetClassifier) -> None:
    """Raise if a table has another number of features than those a model was fitted on; warn of another encoder."""
    file, spec = table.path, classifier.table_spec_
    if (width := table.features.shape[1]) != (fitted := classifier.n_features_in_):
        found = f"{file} has {width} features for each sample, but {model} was fitted on {fitted}"
        raise ValueError(f"{found}; were they made by the same encoder?")
    if None not in (spec.encoder, table.spec.encoder) and spec.encoder != table.spec.encoder:
        found = f"{file} was embedded by {table.spec.encoder}, but {model} was fitted on embeddings by {spec.encoder}"
        warnings.warn(f"{found}; unless these are the same encoder, decisions mean nothing.", stacklevel=3)


def model_mark(folder: Path) -> str:
    """A text that changes with the content of a model."""
    files = [folder / tables.MODEL] if (folder / tables.MODEL).is_file() else _files_of(str(folder))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _decided(table: tables.FeatureTable, rows: _Rows, classifier: OpenSetClassifier, *, labelled: bool) -> Piece:
    pyarrow, _ = import_pyarrow()
    count = len(table.features)
    X = table.features if count else np.zeros((1, classifier.n_features_in_), classifier.dtype_)
    found = {name: values[:count] for name, values in tables.decide(classifier, X).items()}
    others = tables.other_columns(table)
    if rows.arrow is None:
        columns = pyarrow.table(others)
    else:
        columns = rows.arrow if table.kept is None else rows.arrow.filter(pyarrow.array(table.kept))
        columns = columns.select(list(others))
    if labelled:
        y_true = tables.truth(classifier, table.labels)[0] if count else found["y_pred"]
        # All names or all numbers, even of rows that are all unknown.
        found = {"y_true": y_true.astype(str) if found["y_pred"].dtype.kind == "U" else y_true, **found}
    for name, values in found.items():
        columns = columns.append_column(name, pyarrow.array(values))
    unknown = int((found["prediction"] != found["y_pred"]).sum())
    return Piece(columns, rows.share, unknown)


def _all_labelled(shard: Shard, table: tables.FeatureTable) -> bool:
    """Whether every row of a shard, of which ``table`` holds the first, has a label."""
    if table.spec.label is None or suffix_of(shard.path) != ".parquet":
        return table.labelled
    labels = (labels.column(0).to_pylist() for labels, _ in read_tables(shard, [table.spec.label]))
    return not any(map(is_empty, chain.from_iterable(labels)))


def _tables_of(shard: Shard) -> Iterator[tuple[Any, float]]:
    """The rows of a shard as Arrow tables, and the share of them that each holds."""
    if suffix_of(shard.path) == ".parquet":
        yield from read_tables(shard)
    elif suffix_of(shard.path) == ".csv":
        with shard.copied() as path:
            yield read_table(path)[0], 1.0
    else:
        raise ValueError(f"{shard.path} cannot hold texts or images for this; expected .csv or .parquet.")


def _files_of(name: str) -> list[Path]:
    """The files of an encoder or a model that are not found by their name alone."""
    place = next((Path(text) for text in (name, name.partition(":")[2]) if text and Path(text).exists()), None)
    if place is None or place.is_file():
        return [place] if place else []
    weights = place / WEIGHTS
    return [weights] if weights.is_file() else sorted(file for file in place.iterdir() if file.is_file())


@lru_cache(maxsize=1)
def _encoder(step: Embedding, kind: Kind | None) -> Encoder:
    return step.load(kind)


@lru_cache(maxsize=1)
def _classifier(step: Deciding) -> OpenSetClassifier:
    from openauc.features.classifier.estimator import OpenSetClassifier

    if model_mark(Path(step.model)) != step.mark:
        raise ValueError(f"{step.model} has changed since the run began; start again when nobody writes to it.")
    return OpenSetClassifier.load(step.model)
