"""Constants, structs and signatures of kernels, parsed from the CUDA sources, so that no Python code repeats them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ctypes import Structure, c_float, c_int, c_longlong, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from splatbatch.training.cuda.compile import PROGRAMS, SOURCE

_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^ +(?:const )?(\w[\w ]*?)(\*?) (\w+(?:\[\w+\])?(?:, \w+)*);", re.MULTILINE)
_KERNEL = re.compile(r"^KERNEL\((\w+(?: \* \w+)*)\) (\w+)\((.*?)\) \{", re.MULTILINE)
_CONSTANT = re.compile(r"^constexpr int (\w+) = (\d+);", re.MULTILINE)
_TYPES = {"float": c_float, "int": c_int, "long long": c_longlong}


@dataclass(frozen=True)
class Kernel:
    """A kernel that Python launches: its program (a source file), block size and arguments."""

    program: str
    threads: int  # of a block
    arguments: tuple[type[Structure], ...]  # by value


@cache
def _texts() -> Mapping[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCE.iterdir()) if path.is_file()}


@cache
def _constants() -> Mapping[str, int]:
    return {name: int(value) for text in _texts().values() for name, value in _CONSTANT.findall(text)}


def constant(name: str) -> int:
    """Return an integer constant of the CUDA sources by its name, such as `WARP`.

    Raises:
        KeyError: the sources have no such constant.
    """
    return _constants()[name]


@cache
def struct(name: str) -> type[Structure]:
    """Return a struct of the CUDA sources, by its name, as a ctypes structure of the same layout; cached.

    Raises:
        KeyError: the sources have no such struct, or it has a field of an unknown type.
    """
    fields = {found: body for text in _texts().values() for found, body in _STRUCT.findall(text)}[name]
    laid_out = [one for kind, star, names in _FIELD.findall(fields) for one in _fields(kind, star, names)]
    return type(name, (Structure,), {"_fields_": laid_out, "__doc__": f"`struct {name}` of the CUDA sources."})


def _fields(kind: str, star: str, names: str) -> list[tuple[str, Any]]:
    of_kind: Any = c_void_p if star else _TYPES[kind]
    found = []
    for name in names.split(", "):
        bare, _, size = name.rstrip("]").partition("[")
        found.append((bare, of_kind * _constants()[size] if size else of_kind))
    return found


@cache
def kernels() -> Mapping[str, Kernel]:
    """Return all kernels of the CUDA sources (files of `PROGRAMS`) by name; cached.

    Raises:
        KeyError: a kernel has a block size or an argument that the sources do not define.
    """
    found = {}
    for program in PROGRAMS:
        for threads, name, arguments in _KERNEL.findall(_texts()[f"{program}.cu"]):
            size = 1
            for factor in threads.split(" * "):
                size *= _constants()[factor]
            found[name] = Kernel(program, size, tuple(struct(one.split()[0]) for one in arguments.split(", ")))
    return found
