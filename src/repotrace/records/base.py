"""What every record shares, and the two ways bytes survive JSON."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator


class Record(BaseModel):
    """A frozen fact. Unknown fields of a newer minor version are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def encode_bytes(data: bytes) -> str | dict[str, str]:
    """`data` for JSON: the text where UTF-8 is lossless, else `{"base64": "…"}`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def decode_bytes(value: object) -> bytes:
    """The bytes that `encode_bytes` wrote. Raises ValueError for anything else."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError("not base64") from error
    raise ValueError('expected a string or {"base64": "…"}')


def _decode_os_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return os.fsdecode(decode_bytes(value))


def _encode_os_text(value: str) -> Any:
    try:
        return encode_bytes(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # half a character, which no operating system gave
        return encode_bytes(value.encode("utf-8", "surrogatepass"))


type Bytes = Annotated[bytes, PlainValidator(decode_bytes), PlainSerializer(encode_bytes)]
"""Bytes, in JSON a string where that is lossless, else `{"base64": "…"}`."""

type OsText = Annotated[str, PlainValidator(_decode_os_text), PlainSerializer(_encode_os_text)]
"""Text that the operating system gave (argv, paths): may hold surrogate escapes."""


def printable(text: str) -> str:
    """`text` that any encoder accepts: surrogate escapes become `\\xNN`, others `\\uNNNN`."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
