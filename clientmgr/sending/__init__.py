"""From a message for contacts to messages for devices: fetch, filter, choose a language, assemble."""
