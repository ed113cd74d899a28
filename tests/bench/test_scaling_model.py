"""The arithmetic of scaling: lines through what was measured, what each size needs, and the page that shows it."""

import dataclasses

import msgspec
import pytest

from bench.scaling.__main__ import PAGE, page, published
from bench.scaling.limits import limits
from bench.scaling.model import STEPS, Assumed, Costs, Growth, Step, line, need
from bench.scaling.on_cluster import NOT_MEASURED, ClusterCosts, cluster_blocks, cluster_limits

COSTS = Costs.of(published())


def test_a_line_goes_through_points_that_lie_on_one() -> None:
    found = line((x, 5 + 0.25 * x) for x in (100, 1_000, 10_000))

    assert (found.constant, found.each) == pytest.approx((5, 0.25))
    assert found.at(1_000_000) == pytest.approx(250_005)


def test_a_constant_is_seen_though_the_largest_point_is_a_hundred_times_larger() -> None:
    found = line([(100, 30.0), (1_000, 40.0), (10_000, 130.0)])

    assert found.constant == pytest.approx(29, abs=3)


def test_a_growth_is_never_below_nothing() -> None:
    assert Growth(-5, 1).at(2) == 0


def test_more_is_never_less() -> None:
    needs = [need(step, COSTS, Assumed()) for step in STEPS]

    for name in ("storage_bytes", "events_a_second", "daemon_cores", "connections", "runs", "nodes", "installations"):
        values = [getattr(one, name) for one in needs]
        assert values == sorted(values), name
    assert needs[0].nodes == needs[0].installations == 1


def test_what_is_short_names_itself_and_decides_how_many_servers() -> None:
    tenants_only = need(Step(100_000, 1), COSTS, Assumed())
    assert (tenants_only.nodes, tenants_only.because) == (5, "tenants")

    small_disks = dataclasses.replace(Assumed(), node_disk_bytes=1e9)
    assert need(Step(10, 10**7), COSTS, small_disks).because == "storage"

    busy = dataclasses.replace(Assumed(), events_a_device_day=1_000.0)
    assert need(Step(10, 10**9), COSTS, busy).because == "cores"


def test_the_log_moves_out_when_its_server_can_take_no_more() -> None:
    quiet = dataclasses.replace(Assumed(), events_a_device_day=0.001)

    assert not need(STEPS[-1], COSTS, quiet).on_pubsub
    assert need(STEPS[-1], COSTS, Assumed()).on_pubsub


def test_limits_come_in_the_order_in_which_they_are_reached() -> None:
    reached = [one.tenants for one in limits(COSTS, published(), Assumed())]

    assert reached == sorted(reached)
    assert all(number > 0 for number in reached)


def test_the_page_shows_the_arithmetic_of_the_published_run() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it: python -m bench.scaling --write"


def test_of_a_cluster_more_nodes_take_tenants_away_but_not_what_all_of_them_are_told() -> None:
    costs = ClusterCosts.of(published())

    few, many = costs.node_catalogue_at(100_000, 2), costs.node_catalogue_at(100_000, 20)
    assert few == pytest.approx(costs.node_catalogue.at(100_000))
    assert few / 10 < many < few
    assert costs.coordinator_relations.each == pytest.approx(COSTS.relations.each, rel=0.1)
    assert costs.move_s > 0


def test_a_cluster_s_limits_are_reached_in_their_order() -> None:
    reached = [one.tenants for one in cluster_limits(ClusterCosts.of(published()))]

    assert reached == sorted(reached)
    assert all(number > 0 for number in reached)


def test_without_a_cluster_the_page_says_so() -> None:
    none = msgspec.structs.replace(published(), cluster=(), cluster_backends=())

    assert set(cluster_blocks(none, []).values()) == {NOT_MEASURED}
    assert cluster_blocks(none, []).keys() == cluster_blocks(published(), []).keys()
