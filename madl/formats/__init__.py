"""Number formats as values: one module per family, found by `presets()` as files on disk.

A new format is a new module here with a tuple `PRESETS`; nothing else needs an edit.
"""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from madl.formats.base import NumberFormat


@functools.cache
def presets() -> Mapping[str, "NumberFormat"]:
    """Name → format, of every module's `PRESETS`, in the order of the modules' names."""
    found: dict[str, NumberFormat] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for number_format in getattr(module, "PRESETS", ()):
            assert number_format.name not in found, f"two presets named {number_format.name}"
            found[number_format.name] = number_format
    return MappingProxyType(found)
