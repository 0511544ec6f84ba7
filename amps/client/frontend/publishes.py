"""The headers of publishes without fields of their own, prepared once per topic."""

from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.traffic import Outbox

MAX_TEMPLATES = 10_000


class PublishTemplates:
    """The prepared headers of a client; its outbox learns them, too."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._templates: dict[str, PublishTemplate] = {}

    def of(self, topic: str) -> PublishTemplate:
        """Return the header of a publish to a topic."""
        template = self._templates.get(topic)
        if template is None:
            template = self._templates[topic] = PublishTemplate("publish", topic)
            self._outbox.learn(topic, template.header)
            if len(self._templates) > MAX_TEMPLATES:
                self._templates.clear()
        return template
