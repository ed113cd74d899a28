"""PromQL expressions, parsed by somebody else's parser, and what they ask of the metrics."""

from dataclasses import dataclass, field
from typing import Any

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, VectorSelector


@dataclass
class Asked:
    """The series that an expression names, each with the labels it is chosen by; and the labels it is grouped by."""

    series: dict[str, set[str]] = field(default_factory=dict)
    grouped_by: set[str] = field(default_factory=set)


def asked_of(expression: str) -> Asked:
    """Fails with the parser's own words for what is no PromQL."""
    found = Asked()

    def look(node: Any) -> bool:
        if isinstance(node, VectorSelector):
            assert node.name, f"{expression}: a metric is to be named, not matched"
            found.series.setdefault(node.name, set()).update(matcher.name for matcher in node.matchers.matchers)
        if isinstance(node, AggregateExpr) and node.modifier is not None:
            found.grouped_by.update(node.modifier.labels)
        if isinstance(node, BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            found.grouped_by.update(node.modifier.matching.labels)
        return True

    promql_parser.walk(promql_parser.parse(expression), look)
    return found
