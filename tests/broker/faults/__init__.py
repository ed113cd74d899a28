"""The proof that the PostgreSQL log loses, doubles, reorders and splits nothing, whatever dies meanwhile.

`harness` runs real publisher and consumer processes and breaks things; `check` reads the verdict from the database;
`mutants` are broken variants that the same harness must catch. `python -m tests.broker.faults` is the long version.
"""
