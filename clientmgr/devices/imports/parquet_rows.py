"""Reads Parquet in portions of bounded size: of what a few bytes in a file can stand for, one portion must fit.

Dictionaries, prefixes and compression make 640 bytes of a file 8 GB of rows, and no writer of devices means that.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from clientmgr.base.errors import InvalidInputError

ROWS_A_READ: Final = 5000
ROWS_WITH_PREFIXES: Final = 64
"""Arrow unfolds prefixes (DELTA_BYTE_ARRAY) while it reads, before anybody can look how long they became."""
MOST_BYTES_A_READ: Final = 256 * 1024 * 1024
MOST_UNPACKED: Final = 1000
"""Bytes before compression for each byte of the file, beyond those that are `SPARE_BYTES`."""
SPARE_BYTES: Final = 16 * 1024 * 1024
MOST_ELEMENTS: Final = 100
"""Elements of lists and maps for each byte of the file."""


def column_names(file: Path) -> list[str]:
    return list(_opened(file).schema_arrow.names)


def portions(file: Path) -> Iterator[tuple[Sequence[str], list[tuple[Any, ...]]]]:
    """Names of columns, and rows, in their order."""
    import pyarrow.parquet as pq

    plain = _opened(file)
    _check_sizes(file, plain)
    schema, metadata = plain.schema, plain.metadata
    strings = {leaf.path for leaf in map(schema.column, range(len(schema))) if leaf.physical_type == "BYTE_ARRAY"}
    prefixed = {chunk.path_in_schema for chunk in _chunks(metadata) if "DELTA_BYTE_ARRAY" in chunk.encodings}
    # Each text stays once in memory until it is known how often it is meant.
    folded = pq.ParquetFile(file, metadata=metadata, read_dictionary=sorted(strings - prefixed))
    batches = folded.iter_batches(batch_size=ROWS_WITH_PREFIXES if prefixed else ROWS_A_READ)
    types, number = plain.schema_arrow.types, 0
    while True:
        try:
            batch = next(batches, None)
        except OSError as error:  # Arrow's word for pages that are damaged
            raise InvalidInputError("FILE", f"a whole Parquet file; after row {number}: {error}", file.name) from None
        if batch is None:
            return
        if sum(map(_unfolded_bytes, batch.columns)) > MOST_BYTES_A_READ:
            expected = (
                f"at most {MOST_BYTES_A_READ:,} bytes in {batch.num_rows:,} rows; after row {number} there are more"
            )
            raise InvalidInputError("FILE", expected, file.name)
        number += batch.num_rows
        values = (column.cast(kind).to_pylist() for column, kind in zip(batch.columns, types, strict=True))
        yield batch.schema.names, list(zip(*values, strict=True))


def _check_sizes(file: Path, parquet: Any) -> None:
    """Refuse by what the file says of itself, before any of it is unpacked."""
    metadata, schema = parquet.metadata, parquet.schema
    size = file.stat().st_size
    unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    if unpacked > MOST_UNPACKED * size + SPARE_BYTES:
        expected = f"a file that unpacks to at most {MOST_UNPACKED} times its size, not to {unpacked:,} bytes"
        raise InvalidInputError("FILE", expected, file.name)
    leaves = [schema.column(number) for number in range(len(schema))]
    width = sum(leaf.length for leaf in leaves if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY")
    if width * ROWS_A_READ > MOST_BYTES_A_READ:
        raise InvalidInputError("FILE", f"rows of at most {MOST_BYTES_A_READ // ROWS_A_READ:,} bytes", file.name)
    repeated = {leaf.path for leaf in leaves if leaf.max_repetition_level}
    elements = sum(chunk.num_values for chunk in _chunks(metadata) if chunk.path_in_schema in repeated)
    if elements > max(MOST_ELEMENTS * size, metadata.num_rows):  # an empty list counts as one
        expected = f"at most {MOST_ELEMENTS * size:,} elements in the lists of so small a file, not {elements:,}"
        raise InvalidInputError("FILE", expected, file.name)


def _chunks(metadata: Any) -> Iterator[Any]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            yield group.column(place)


def _unfolded_bytes(column: Any) -> int:
    """How large it becomes once each text stands where it is meant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(column.dictionary)
        return pc.sum(lengths.take(column.indices)).as_py() or 0
    if pa.types.is_struct(kind):
        return sum(map(_unfolded_bytes, column.flatten()))
    if pa.types.is_fixed_size_list(kind):
        return _unfolded_bytes(column.values)
    if pa.types.is_nested(kind):  # a list, or a map, which is a list of pairs
        first, last = (column.offsets[place].as_py() for place in (0, -1))
        return _unfolded_bytes(column.values.slice(first, last - first))
    return int(column.nbytes)


def _opened(file: Path) -> Any:
    # It takes a while to import, and most commands read no Parquet.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise InvalidInputError("FILE", f"a Parquet file ({error})", file.name) from None
