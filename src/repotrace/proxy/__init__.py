"""A reverse proxy on 127.0.0.1 between an agent and its provider: bytes pass unchanged, and what
passed is handed out as `Exchange` records. It knows no recorder, and keeps no keys.
"""

from __future__ import annotations

from repotrace.proxy.exchange import Exchange
from repotrace.proxy.relay import Relay
from repotrace.proxy.upstreams import Upstreams

__all__ = ["Exchange", "Relay", "Upstreams"]
