"""`python -m bench [NAME …] [--quick] [--json FILE]`: runs the benchmarks it finds and prints a table for each."""

import dataclasses
import importlib
import json
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

import structlog
import typer
from rich.console import Console

import bench
from bench.harness.machine import Machine, describe_machine
from bench.harness.options import TEMPORARY, Options
from bench.harness.report import Comparison, Listing, print_result

NOT_BENCHMARKS = {"__main__", "harness", "peers"}


app = typer.Typer(add_completion=False)


def benchmarks() -> dict[str, ModuleType]:
    names = (module.name for module in pkgutil.iter_modules(bench.__path__))
    return {name: importlib.import_module(f"bench.{name}") for name in sorted(names) if name not in NOT_BENCHMARKS}


@app.command()
def main(  # noqa: PLR0917 - these are the options of the command line
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which benchmarks to run; all if none is named.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A fraction of the work: does it run, roughly what comes out?")
    ] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="How often each variant runs; the median counts.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write every sample to FILE as well.")
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(help="Where the servers keep their data meanwhile. Not a RAM disk: there fsync costs nothing."),
    ] = TEMPORARY,
    tenants: Annotated[
        int | None, typer.Option(min=1, help="How many tenants event_log, night and scaling have, instead of 10,000.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Name the benchmarks and stop.")] = False,
) -> None:
    """Run benchmarks: ours, the peers' and the physical limit, on servers of their own, same work checked.

    Read the results as ratios: variants take turns on one machine, so that its other load hits them all alike.
    """
    found = benchmarks()
    if unknown := sorted(set(names or ()) - set(found)):
        raise typer.BadParameter(f"{', '.join(unknown)}: not one of {', '.join(found)}", param_hint="NAME")
    console = Console(width=None if sys.stdout.isatty() else 120)
    if list_only:
        for name, module in found.items():
            console.print(f"[bold]{name}[/]  {(module.__doc__ or '').splitlines()[0]}")
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))  # migrations announce themselves
    options = Options(quick=quick, rounds=rounds or (1 if quick else 5), folder=folder, tenants=tenants)
    machine = describe_machine()
    console.print(f"[dim]{machine}[/]")
    results: dict[str, list[Comparison | Listing]] = {}
    for name in names or found:
        results[name] = []
        # Printed and kept as they come: a long run that breaks off has said something.
        for result in found[name].run(options):
            results[name].append(result)
            print_result(console, result)
            if json_file is not None:
                keep(json_file, machine, results)
    console.print(f"[dim]Load average at the end: {describe_machine().load_average}[/]")


def keep(file: Path, machine: Machine, results: Mapping[str, Sequence[Comparison | Listing]]) -> None:
    tables = {name: [dataclasses.asdict(table) for table in tables] for name, tables in results.items()}
    file.write_text(json.dumps({"machine": dataclasses.asdict(machine), "benchmarks": tables}, indent=2))


if __name__ == "__main__":
    app(prog_name="python -m bench")
