"""A message that leaves something to its application's configuration, completed with it. Pure."""

from msgspec.structs import replace

from clientmgr.contracts.sending import SendingMessage
from clientmgr.tenants.applications import Application


def needs_configuration(message: SendingMessage) -> bool:
    """Whether there is something that the configuration could add. Most messages say it all."""
    return not message.default_language or (message.channel == "push" and not message.options.apple_topic)


def completed(message: SendingMessage, application: Application | None) -> SendingMessage:
    """What the message says itself counts; the application's configuration is for the rest."""
    if application is None or not needs_configuration(message):
        return message
    options = message.options
    return replace(
        message,
        options=replace(options, apple_topic=options.apple_topic or application.apple_topic),
        default_language=message.default_language or application.default_language,
    )
