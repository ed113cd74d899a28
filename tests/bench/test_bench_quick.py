"""The benchmarks run: a handful of tenants, without the peers. What they measure is for `make bench` to say."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import bench.broadcast
import bench.dashboard
import bench.device_mapper
import bench.event_log
import bench.gateway
import bench.imports
import bench.scaling
import bench.tenants
import bench.writer
from bench.__main__ import app, keep
from bench.broadcast.servers import LIMIT, OURS
from bench.harness.machine import describe_machine
from bench.harness.measure import DifferentWorkError, Sample, ensure_same_work, take_turns
from bench.harness.options import Options
from bench.harness.report import Line, Listing, speed_ratio
from bench.harness.servers import bench_postgres
from bench.scaling.__main__ import published
from bench.scaling.measured import Installation, figures, read_measured
from bench.scaling.tables import blocks


@pytest.mark.server
@pytest.mark.bench
def test_the_tenants_benchmark_runs_and_says_which_peers_are_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BENCH_VENV", str(tmp_path / "absent"))

    tables = bench.tenants.compare(Options(quick=True, rounds=1, folder=tmp_path), tenants=3, registered=(10,))

    assert tables[0].lines[0].variant == "ours"
    assert any("django-tenants: not installed" in note for note in tables[0].notes)
    assert all(line.wall_s > 0 for table in tables for line in table.lines)


@pytest.mark.server
@pytest.mark.bench
def test_the_broadcast_benchmark_runs_and_every_frame_arrives(tmp_path: Path) -> None:
    scenario = bench.broadcast.Scenario(connections=6, events=2, rate=200, records=40)

    table = bench.broadcast.compare(Options(quick=True, rounds=1, folder=tmp_path), scenario, [OURS, LIMIT])

    assert scenario.frames == table.amount == 6 * 20
    assert [line.variant for line in table.lines] == ["ours", "limit: plain sockets"]
    assert any("lag of ours: p50" in note for note in table.notes)


@pytest.mark.server
@pytest.mark.bench
def test_the_device_mappers_benchmark_runs_and_its_variants_do_the_same_work(tmp_path: Path) -> None:
    options = Options(quick=True, rounds=1, folder=tmp_path)
    with bench_postgres(options) as server:
        table = next(bench.device_mapper.mapping(server, recipients=40, rounds=1, numbers_of_devices=[2]))

    variants = [line.variant for line in table.lines]
    assert variants[:2] == ["ours, the daemon", "a contact at a time"]
    assert len(variants) == 6


@pytest.mark.server
@pytest.mark.bench
def test_the_event_logs_benchmark_runs_and_ours_tells_less_than_every_tenant_each_time(tmp_path: Path) -> None:
    with bench_postgres(Options(quick=True, rounds=1, folder=tmp_path)) as server:
        table = bench.event_log.compare(server, tenants=20, hours=1)

    assert [line.variant for line in table.lines] == ["ours", "an event for each tenant"]
    ours, each = (int(note.split(" materialisations")[0].split()[-1].replace(",", "")) for note in table.notes)
    # 20 tenants, two assets an hour and five a night; for 10,000.
    assert each == 10_000 * (24 * 2 + 5)
    assert ours < each / 3


@pytest.mark.server
@pytest.mark.bench
def test_the_writers_benchmark_runs_and_its_variants_leave_the_same_rows(tmp_path: Path) -> None:
    with bench_postgres(Options(quick=True, rounds=1, folder=tmp_path)) as server:
        table = next(bench.writer.writing(server, tmp_path, [2], 300, 1))
        deletions = next(bench.writer.deleting(server, tmp_path, [2], 50, 1))

    for measured in (table, deletions):
        assert [line.variant for line in measured.lines] == ["ours, the daemon", "limit: prebuilt bulk statements"]


@pytest.mark.server
@pytest.mark.bench
def test_the_dashboards_benchmark_runs_and_its_variants_show_the_same(tmp_path: Path) -> None:
    tables = list(bench.dashboard.compare(Options(quick=True, rounds=1, folder=tmp_path), tenants=120))

    assert [line.variant for line in tables[0].lines] == [
        "ours, the page",
        "ours, the API",
        "everything at once",
        "limit",
    ]
    assert tables[-1].title == "Overview of 120 tenants"
    assert all("aim: under 200 ms" in table.notes[0] for table in tables)


@pytest.mark.server
@pytest.mark.bench
def test_the_scaling_benchmark_runs_and_its_parts_can_be_put_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SCALING_PARTS", "devices,writer,partitions,tenants")
    results = list(bench.scaling.run(Options(quick=True, rounds=1, folder=tmp_path, tenants=2)))

    file = tmp_path / "found.json"
    keep(
        file, describe_machine(), {"scaling": [*results, Listing("", (), (), figures=figures(Installation({"x": 3})))]}
    )
    measured = read_measured(file)
    assert [one.tenants for one in measured.sizes] == [1, 2]
    assert measured.sizes[1].relations > measured.sizes[0].relations
    assert {one.schemas for one in measured.backends} == {1, 2}
    assert blocks(measured).keys() == blocks(published()).keys()


def test_variants_that_did_different_work_are_refused() -> None:
    with pytest.raises(DifferentWorkError, match="theirs did not do what ours did"):
        ensure_same_work("rows", {"ours": 10, "theirs": 9})


def test_variants_take_turns_and_none_is_always_the_first() -> None:
    assert "".join(take_turns("ABC", 3)) == "ABCBCACAB"


def test_a_ratio_compares_each_round_within_itself() -> None:
    ours = Line("ours", tuple(Sample(wall, 0) for wall in (1.0, 10.0, 2.0)))
    theirs = Line("theirs", tuple(Sample(wall, 0) for wall in (3.0, 30.0, 2.0)))

    assert speed_ratio(ours, theirs) == 3.0


def test_an_unknown_benchmark_is_refused_by_name() -> None:
    result = CliRunner().invoke(app, ["nonsense"])

    assert result.exit_code == 2
    assert "nonsense" in result.output


@pytest.mark.server
@pytest.mark.bench
def test_the_import_benchmark_runs_and_every_form_leaves_what_copy_leaves(tmp_path: Path) -> None:
    (table,) = bench.imports.compare(Options(quick=True, rounds=1, folder=tmp_path), 60)
    assert [line.variant for line in table.lines] == [
        "ours, CSV",
        "ours, JSON lines",
        "ours, Parquet",
        bench.imports.LIMIT,
    ]


@pytest.mark.server
@pytest.mark.bench
def test_the_gateways_benchmark_runs_and_every_message_comes_once_in_its_order(tmp_path: Path) -> None:
    with bench_postgres(Options(quick=True, rounds=1, folder=tmp_path)) as server:
        tables = bench.gateway.compare(server, 300, 8, 1)
    assert [table.title.split()[0] for table in tables] == ["Publishing", "Reading"]
    assert [line.variant for line in tables[0].lines] == ["gateway", "log alone"]
