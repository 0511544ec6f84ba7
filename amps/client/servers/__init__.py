"""The choice of a server: authenticators, and the rule for two clients with one name.

What may not live here: connections (`amps.client.blocking`) and rules of the protocol (`amps.client.protocol`).
"""
