"""Bodies as they pass, decoded for the record piece by piece; what passes on stays as it is."""

from __future__ import annotations

import sys
import zlib
from typing import Any, Protocol

LIMIT = 64 << 20
"""Bytes of a body above which the rest is not kept."""

DECODABLE = ("gzip", "deflate", "zstd", "identity")
"""Encodings that can be read; a provider is not offered others."""


class _Decoder(Protocol):
    def decompress(self, data: bytes, /) -> bytes: ...


class Body:
    """What is kept of a body."""

    def __init__(self, encoding: str = "", limit: int = LIMIT) -> None:
        self.problem: str | None = None
        """Why not all of it could be kept."""
        self._kept = bytearray()
        self._limit = limit
        self._decoders: list[_Decoder] = []
        try:
            for name in reversed([part.strip().lower() for part in encoding.split(",")]):
                if name not in ("", "identity"):
                    self._decoders.append(_decoder(name))
        except (KeyError, ImportError):
            self.problem = f"encoded as {encoding}"

    def add(self, chunk: bytes) -> bytes:
        """Keep a piece, and give it decoded. Never raises: what cannot be read is not kept."""
        if self.problem is not None:
            return b""
        try:
            for decoder in self._decoders:
                chunk = decoder.decompress(chunk)
        except Exception as error:  # of any library: the traffic goes on
            self.problem = f"cannot be decoded: {error}"
            return b""
        if len(self._kept) + len(chunk) > self._limit:
            self.problem = f"longer than {self._limit} bytes"
            chunk = chunk[: max(self._limit - len(self._kept), 0)]
        self._kept += chunk
        return chunk

    @property
    def kept(self) -> bytes:
        """The bytes so far."""
        return bytes(self._kept)


def offered(value: str) -> str:
    """An `Accept-Encoding` without what could not be read; `identity` if nothing is left."""
    parts = [part.strip() for part in value.split(",")]
    kept = [part for part in parts if part.partition(";")[0].strip().lower() in DECODABLE]
    return ", ".join(kept) or "identity"


class _Deflate:
    """Deflate with the header of zlib, or without it, as some servers send it."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj()
        self._begun = False

    def decompress(self, data: bytes, /) -> bytes:
        try:
            found = self._decoder.decompress(data)
        except zlib.error:
            if self._begun:
                raise
            self._decoder = zlib.decompressobj(-zlib.MAX_WBITS)
            found = self._decoder.decompress(data)
        self._begun = True
        return found


def _decoder(name: str) -> _Decoder:
    if name in ("gzip", "x-gzip"):
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    if name == "deflate":
        return _Deflate()
    if name == "zstd":
        decoder: _Decoder = _zstd().ZstdDecompressor()
        return decoder
    raise KeyError(name)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
