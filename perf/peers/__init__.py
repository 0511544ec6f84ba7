"""Who is measured: servers, each with what its protocol wants (amps, nats, redis), next to this one."""
