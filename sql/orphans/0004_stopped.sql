-- A deletion that was stopped has a result too: what it had deleted by then.
ALTER TABLE clientmgr.orphan_deletion_results
    DROP CONSTRAINT orphan_deletion_results_outcome_check,
    ADD CONSTRAINT orphan_deletion_results_outcome_check CHECK (
        outcome IN ('deleted', 'dry run', 'excluded', 'legacy', 'guarded', 'not searched', 'failed', 'stopped')
    );
