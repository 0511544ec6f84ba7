"""The two configurations that this package contains: the embedded default and the sample."""

from html import escape
from pathlib import Path

from amps.messages import STANDARD_MESSAGE_TYPES

SAMPLE = """\
<AMPSConfig>
  <!-- The name of the instance. Keep it: the files of the transaction log begin with it. -->
  <Name>AMPS-Sample</Name>

  <!-- Applications connect here, with messages of any type, over the amps protocol. Without an address
       before the port, every address of the host is served, over IPv4 and IPv6. -->
  <Transports>
    <Transport>
      <Name>any-tcp</Name>
      <Type>tcp</Type>
      <InetAddr>9007</InetAddr>
      <Protocol>amps</Protocol>
    </Transport>
  </Transports>

  <!-- The event log goes to standard output. In production, a file is better:
  <Target>
    <Protocol>file</Protocol>
    <FileName>./logs/%Y-%m-%d-%n.log</FileName>
    <RotationThreshold>1G</RotationThreshold>
    <Level>info</Level>
  </Target>
  -->
  <Logging>
    <Target>
      <Protocol>stdout</Protocol>
      <Level>info</Level>
    </Target>
  </Logging>

  <!-- Without a transaction log nothing is kept. To keep every json message, and replay it later:
  <TransactionLog>
    <JournalDirectory>./journal</JournalDirectory>
    <Topic>
      <Name>.*</Name>
      <MessageType>json</MessageType>
    </Topic>
  </TransactionLog>
  -->

  <!-- The administration interface, over HTTP: http://localhost:8085/amps. A port alone is served on this host only.
       Not built yet, and therefore not in this sample: its web console, and the websocket transport that the console
       queries through. -->
  <Admin>
    <InetAddr>8085</InetAddr>
  </Admin>
</AMPSConfig>
"""


def sample_config() -> str:
    """Return a sample configuration: publish and subscribe, without a transaction log."""
    return SAMPLE


def embedded_default_text(data_directory: Path, port: int) -> str:
    """Return the default configuration: local only, every topic of every type recorded."""
    topics = "\n".join(
        f"    <Topic><Name>.*</Name><MessageType>{name}</MessageType></Topic>"
        for name in STANDARD_MESSAGE_TYPES
    )
    return f"""\
<AMPSConfig>
  <Name>amps</Name>
  <Transports>
    <Transport>
      <Name>any-tcp</Name>
      <Type>tcp</Type>
      <InetAddr>127.0.0.1:{port}</InetAddr>
      <Protocol>amps</Protocol>
    </Transport>
  </Transports>
  <Logging>
    <Target>
      <Protocol>stdout</Protocol>
      <Level>info</Level>
    </Target>
  </Logging>
  <TransactionLog>
    <JournalDirectory>{escape(str(data_directory / "journal"), quote=False)}</JournalDirectory>
    <JournalSize>256MB</JournalSize>
{topics}
  </TransactionLog>
</AMPSConfig>
"""
