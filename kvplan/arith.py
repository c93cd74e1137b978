"""Whole-number arithmetic that serves a Python int and an int64 array alike.

An int goes in, an int comes out; an array goes in, an array comes out. Numpy is never imported here unless an
array is already present, so that commands on single numbers do not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray: TypeAlias = npt.NDArray[np.int64]
    Ints: TypeAlias = int | IntArray


@overload
def cdiv(a: int, b: int) -> int: ...
@overload
def cdiv(a: IntArray, b: Ints) -> IntArray: ...
@overload
def cdiv(a: Ints, b: Ints) -> Ints: ...
def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up, exactly."""
    return -(-a // b)


@overload
def round_up(a: int, multiple: int) -> int: ...
@overload
def round_up(a: IntArray, multiple: int) -> IntArray: ...
@overload
def round_up(a: Ints, multiple: int) -> Ints: ...
def round_up(a: Any, multiple: int) -> Any:
    """The least multiple of `multiple` that is not below `a`."""
    return -(-a // multiple) * multiple


@overload
def minimum(a: int, b: int) -> int: ...
@overload
def minimum(a: Ints, b: Ints) -> Ints: ...
def minimum(a: Any, b: Any) -> Any:
    """The smaller of two, element by element for arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    import numpy as np

    return np.minimum(a, b)


@overload
def maximum(a: int, b: int) -> int: ...
@overload
def maximum(a: Ints, b: Ints) -> Ints: ...
def maximum(a: Any, b: Any) -> Any:
    """The larger of two, element by element for arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    import numpy as np

    return np.maximum(a, b)
