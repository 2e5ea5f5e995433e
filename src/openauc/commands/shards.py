"""What commands share that write a file for each shard: options, and what is said in the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from openauc._columns import FORMATS
from openauc.commands.progress import progress_bar
from openauc.commands.terminal import say

if TYPE_CHECKING:
    from openauc.executors import Execute
    from openauc.shards.mapping import Step

SHARDS_HELP = "Or shards, which give one file each: a pattern in quotes ('log/*.parquet') or a URL (s3://...)."
at_scale = partial(Option, rich_help_panel="Shards")
Jobs = Annotated[int | None, at_scale("--jobs", "-j", min=1, help="Processes; each takes one shard at a time.")]
OnRay = Annotated[bool, at_scale("--ray", help="Work on a Ray cluster started here.")]
RayAddress = Annotated[str | None, at_scale(help="Work on this Ray cluster, such as auto.")]


def refuse_at_scale(**options: object) -> None:
    """Raise if an option is given that is for shards."""
    for name in (name for name, given in options.items() if given):
        option = f"--{name.replace('_', '-')}"
        raise ValueError(f"{option} is for shards; name a pattern in quotes, such as 'log/*.parquet', or leave it out.")


def over_shards(source: str, step: Step, out: str, execute: Execute, *, skip_bad: bool) -> None:
    """Write a file for each shard, and say what was done."""
    from openauc.shards.mapping import map_shards

    if out.lower().endswith(FORMATS):
        raise ValueError(f"{out} is the name of a file, but each shard has a file of its own; name a folder with -o.")
    try:
        with progress_bar("MB read") as show:
            made = map_shards(
                source,
                step,
                out,
                execute=execute,
                skip_bad=skip_bad,
                on_progress=lambda done, total: show(done // 10**6, total // 10**6),
                say=partial(say, err=True),
            )
    except KeyboardInterrupt:
        say(f"stopped; the same command goes on with the shards that are not in {out} yet.", err=True)
        raise Exit(130) from None
    rows = f"{made.rows:,} rows" + f", {made.unknown:,} of them unknown" * (step.kind == "decisions")
    rows += f", {made.left_out:,} more left out" * bool(made.left_out)
    again = f"; {made.n_again:,} of these again, as something has changed" * bool(made.n_again)
    counts = f"{made.n_done:,} done ({rows}{again}), {made.n_there:,} already there, {len(made.skipped):,} skipped"
    say(f"{made.n_shards:,} shards, in {out}: {counts}.")
