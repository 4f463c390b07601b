"""CRC32C of any buffer."""

from __future__ import annotations

import google_crc32c
import numpy as np

from tidemark.message.batches.batch import Buffer


def crc32c(data: Buffer, before: int = 0) -> int:
    """Returns the checksum of `data`, or of longer data that ends with it, whose beginning has `before`."""
    # The library takes bytes and arrays, but no bytearray or memoryview; an array over them copies nothing.
    readable = data if isinstance(data, bytes) else np.frombuffer(data, np.uint8)
    result: int = google_crc32c.extend(before, readable)
    return result
