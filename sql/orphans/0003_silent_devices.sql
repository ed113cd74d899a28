-- An orphan's age counts from its last sign of life, not from the loss of its contact.
ALTER TABLE clientmgr.orphan_candidates RENAME COLUMN orphaned_since TO silent_since;
ALTER TABLE clientmgr.orphan_candidates_staged RENAME COLUMN orphaned_since TO silent_since;

-- Customers who are still read from the legacy store have no orphans.
ALTER TABLE clientmgr.orphan_deletion_results
    DROP CONSTRAINT orphan_deletion_results_outcome_check,
    ADD CONSTRAINT orphan_deletion_results_outcome_check CHECK (
        outcome IN ('deleted', 'dry run', 'excluded', 'legacy', 'guarded', 'not searched', 'failed')
    );
