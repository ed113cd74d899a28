"""Columns as array literals: PostgreSQL reads back exactly what went in."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clientmgr.base.arrays import bigint_array, bytea_array, text_array
from clientmgr.base.database import Database, Role

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from('"\\{}, '))
BIGINTS = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.lists(TEXTS | st.just("NULL") | st.none()), st.lists(BIGINTS | st.none()), st.lists(st.binary())),
        max_size=20,
    )
)
def test_any_values_come_back_as_they_were(
    database: Database, rows: list[tuple[list[str | None], list[int | None], list[bytes]]]
) -> None:
    with database.connect(Role.READER) as connection:
        for texts, numbers, blobs in rows:
            found = connection.execute(
                "SELECT %s::text [], %s::bigint [], %s::bytea []",
                (text_array(texts), bigint_array(numbers), bytea_array(blobs)),
            ).fetchone()
            assert found == (texts, numbers, blobs)
