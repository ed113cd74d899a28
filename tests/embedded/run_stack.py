"""An owner of an embedded stack, for tests that kill it: prints where the servers are, and runs until it is ended."""

import json
import signal

from clientmgr.base.logs import configure_logging
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.postgres import PostgresTuning
from clientmgr.local.embedded.stack import EmbeddedStack

if __name__ == "__main__":
    settings = load_settings()
    configure_logging(settings)
    with EmbeddedStack(settings, tuning=PostgresTuning(shared_buffers="16MB", fsync=False)) as stack:
        urls = {"database_url": stack.settings.database_url, "redis_url": stack.settings.redis_url}
        print(json.dumps(urls), flush=True)
        signal.pause()
