"""Pages written before each build: results of `benchmark/results`, the commands' help, a report, a query."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import typer
from PIL import Image
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

from openauc import Predictions
from openauc.cli import app as command_line
from openauc.report import predictions_report
from openauc.sql import query

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmark/results"
LINK = "../../../benchmark/results"
"""The same folder, seen from the written pages."""
FIGURES = ROOT / "benchmark/figures.py"

HEAD = """# Results

Every number and figure here was written by a program in `benchmark/`, with the versions, the hardware and the commit it
was made with. The JSON beside a table holds each single trial. Newer files come first.
"""


def overview(folder: Path) -> str:
    """The page that leads to every file of ``folder``, which is where `benchmark/results` is kept."""
    kinds = defaultdict(list)
    for file in sorted(folder.iterdir()):
        if match := re.fullmatch(r"(.+)_([^_]+)_(\d{6})", file.stem):
            kinds[match[1]].append((match[3], match[2], file))
    tables = [line for name in sorted(kinds) for line in tables_of(kinds[name])]
    drawings = [line for name in sorted(kinds) for line in drawings_of(name, kinds[name])]
    pages = "\n".join(sorted(file.stem for file in folder.glob("*.md")))
    return "\n".join(
        [
            HEAD,
            "| benchmark | hardware | month | data |",
            "|---|---|---|---|",
            *tables,
            "",
            *drawings,
            f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n",
        ]
    )


def tables_of(files: list[tuple[str, str, Path]]) -> Iterator[str]:
    """Rows of the overview, newest first."""
    for month, hardware, file in sorted(files, reverse=True):
        if file.suffix == ".md":
            data = file.with_suffix(".json")
            link = f"[JSON]({LINK}/{data.name})" if data.exists() else ""
            made = f"{hardware} | {month[:4]}-{month[4:]}".replace("-", "\N{NON-BREAKING HYPHEN}")
            yield f"| [{title_of(file)}]({file.stem}.md) | {made} | {link} |"


def drawings_of(name: str, files: list[tuple[str, str, Path]]) -> Iterator[str]:
    """Figures, newest first; those of the paper are described by the function of that name that draws them."""
    functions = ast.parse(FIGURES.read_text(encoding="utf-8")).body
    about = {f.name: ast.get_docstring(f) for f in functions if isinstance(f, ast.FunctionDef)}
    for month, hardware, file in sorted(files, reverse=True):
        if file.suffix == ".png":
            said = about.get(name, "").partition("\n\n")[0]
            words = re.sub(r":math:`(.*?)`", r"$\1$", said.replace("\n", " "))
            title = re.sub(r"(\d+)", r" \1", name).capitalize()
            yield f"## {title}, {month[:4]}-{month[4:]}\n\n{words}\n"
            with Image.open(file) as image:
                source = image.info.get("Description", f"Made on {hardware}.")
            yield f"{source} [As SVG]({LINK}/{file.stem}.svg).\n"
            yield f"![{name}]({LINK}/{file.name})\n"


def title_of(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def commands() -> str:
    """Every command with its arguments and options."""
    group = typer.main.get_command(command_line)
    return get_docs_for_click(obj=group, ctx=typer.Context(group), name="openauc", title="Command line")


def report() -> str:
    """A report on the example predictions."""
    files = [ROOT / "examples/network.npz", ROOT / "examples/linear.npz"]
    return predictions_report({file.stem: Predictions.load(file) for file in files})


def write(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "generated"
    pages = {f"results/{file.name}": file.read_text(encoding="utf-8") for file in RESULTS.glob("*.md")}
    pages |= {"results/index.md": overview(RESULTS), "commands.md": commands(), "report/example_report.html": report()}
    pages["query.sql"] = query("scores.log", by="camera") + ";\n"
    for old in folder.glob("results/*.md"):
        if f"results/{old.name}" not in pages:
            old.unlink()
    for name, text in pages.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads a page again whose file is newer.
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
