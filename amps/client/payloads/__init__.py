"""Bodies of messages: codecs that convert them from and to Python objects.

What may not live here: headers and frames, which are in `amps.client.protocol`. The engine never interprets a body.
"""
