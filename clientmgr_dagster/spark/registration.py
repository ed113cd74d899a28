"""Registers a data source with a session, once for as long as it is the same: Spark warns of each replacement."""

from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

Access = TypeVar("Access", bound=Hashable)

_registered: WeakKeyDictionary[SparkSession, dict[str, Hashable]] = WeakKeyDictionary()


def register_once(spark: SparkSession, make: Callable[[Access], type[DataSource]], access: Access) -> None:
    """`access` is how the store is reached, credentials included: it stays in this process and in pickled classes."""
    known = _registered.setdefault(spark, {})
    if known.get(make.__name__) != access:
        spark.dataSource.register(make(access))
        known[make.__name__] = access
