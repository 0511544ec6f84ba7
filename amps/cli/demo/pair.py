"""The two servers of the replicated demonstration: they replicate to each other and wait for each other."""

from pathlib import Path

from amps.cli.demo.flights import TOPIC_PREFIX
from amps.cli.demo.server import DemoServer, free_port

QUEUE = "departures"
NAMES = ("east", "west")

CONFIGURATION = """<AMPSConfig>
  <Name>{name}</Name>
  <Group>demo</Group>
  <Transports>
    <Transport>
      <Name>clients</Name>
      <Type>tcp</Type>
      <InetAddr>127.0.0.1:{port}</InetAddr>
      <MessageType>json</MessageType>
    </Transport>
    <Transport>
      <Name>replication-in</Name>
      <Type>amps-replication</Type>
      <InetAddr>127.0.0.1:{replication_port}</InetAddr>
    </Transport>
  </Transports>
  <TransactionLog>
    <JournalDirectory>{directory}/journal</JournalDirectory>
    <Topic>
      <Name>^{prefix}</Name>
      <MessageType>json</MessageType>
    </Topic>
  </TransactionLog>
  <SOW>
    <Queue>
      <Name>{queue}</Name>
      <MessageType>json</MessageType>
      <UnderlyingTopic>^{prefix}</UnderlyingTopic>
      <DefaultPublishTarget>{prefix}other</DefaultPublishTarget>
      <LeasePeriod>60s</LeasePeriod>
      <MaxPerSubscriptionBacklog>2000</MaxPerSubscriptionBacklog>
    </Queue>
  </SOW>
  <Replication>
    <Destination>
      <Name>{peer}</Name>
      <Group>demo</Group>
      <SyncType>sync</SyncType>
      <PassThrough>.*</PassThrough>
      <AckConflationInterval>5ms</AckConflationInterval>
      <Topic>
        <Name>^{prefix}</Name>
        <MessageType>json</MessageType>
      </Topic>
      <Topic>
        <Name>{queue}</Name>
        <MessageType>json</MessageType>
      </Topic>
      <Transport>
        <Type>amps-replication</Type>
        <InetAddr>127.0.0.1:{peer_replication_port}</InetAddr>
        <ReconnectTimeout>200ms</ReconnectTimeout>
      </Transport>
    </Destination>
  </Replication>
  <Logging>
    <Target>
      <Protocol>stdout</Protocol>
      <Level>warning</Level>
      <IncludeErrors>00-0015</IncludeErrors>
    </Target>
  </Logging>
</AMPSConfig>
"""


def make_pair(directory: Path) -> list[DemoServer]:
    """Write both configurations below the directory, and return both servers, not started."""
    replication_ports = [free_port() for _ in NAMES]
    servers = []
    for at, name in enumerate(NAMES):
        data = directory / name
        data.mkdir()
        port = free_port()
        configuration = directory / f"{name}.xml"
        configuration.write_text(
            CONFIGURATION.format(
                name=name,
                peer=NAMES[1 - at],
                port=port,
                replication_port=replication_ports[at],
                peer_replication_port=replication_ports[1 - at],
                directory=data,
                prefix=TOPIC_PREFIX,
                queue=QUEUE,
            )
        )
        servers.append(DemoServer(data, port, configuration))
    return servers
