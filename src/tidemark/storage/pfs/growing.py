"""An array with room at its end, for columns that are appended to and read by turns."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item", bound=np.generic)

ROOM_ITEMS_MIN = 256


class Growing(Generic[Item]):
    """An array that grows. Adding items costs no more than copying them twice, however often it is done."""

    __slots__ = ("_count", "_room")

    def __init__(self, dtype: type[Item]) -> None:
        self._room: NDArray[Item] = np.empty(ROOM_ITEMS_MIN, dtype)
        #: room[:count] is in use; it is never written again, so views of it stay valid
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, items: NDArray[Any]) -> None:
        """Add items at the end."""
        count = self._count + len(items)
        if count > len(self._room):
            room = np.empty(2 * count, self._room.dtype)
            room[: self._count] = self._room[: self._count]
            self._room = room
        self._room[self._count : count] = items
        self._count = count

    def view(self, first: int = 0) -> NDArray[Item]:
        """Returns the items from `first` on, as they are now."""
        return self._room[first : self._count]
