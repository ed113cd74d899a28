-- The topics that sensors wait for. The condition is looked at without a call: other topics pay nothing.
CREATE TRIGGER tell_of_activations AFTER UPDATE OF next_offset ON clientmgr.log_counter FOR EACH ROW
WHEN (new.topic = 'client-manager.activate-customer')
EXECUTE FUNCTION clientmgr.tell_scheduler('client-manager.activate-customer');
CREATE TRIGGER tell_of_account_deletions AFTER UPDATE OF next_offset ON clientmgr.log_counter FOR EACH ROW
WHEN (new.topic = 'client-manager.account-deletion')
EXECUTE FUNCTION clientmgr.tell_scheduler('client-manager.account-deletion');
CREATE TRIGGER tell_of_contact_deletions AFTER UPDATE OF next_offset ON clientmgr.log_counter FOR EACH ROW
WHEN (new.topic = 'client-manager.contact-deletion')
EXECUTE FUNCTION clientmgr.tell_scheduler('client-manager.contact-deletion');

-- What a sensor left alone while its subscription was paused.
CREATE TRIGGER tell_of_resumed_activations AFTER DELETE ON clientmgr.paused_subscriptions FOR EACH ROW
WHEN (old.group_id = 'client-manager.activate-customer')
EXECUTE FUNCTION clientmgr.tell_scheduler('client-manager.activate-customer');
CREATE TRIGGER tell_of_resumed_account_deletions AFTER DELETE ON clientmgr.paused_subscriptions FOR EACH ROW
WHEN (old.group_id = 'client-manager.account-deletion')
EXECUTE FUNCTION clientmgr.tell_scheduler('client-manager.account-deletion');
