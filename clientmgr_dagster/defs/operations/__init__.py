"""Operations: pruning Dagster's log, failed runs, the daemons' health, the verification of the audit log."""
