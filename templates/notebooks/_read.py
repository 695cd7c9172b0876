"""Reads data in notebooks; `madl.site.notebooks` writes it into each, in place of its import."""

import csv
import io
from pathlib import Path
from urllib.request import urlopen

import matplotlib.pyplot as plt

LOGBOOK = ".."  # its folder, seen from this notebook; or the address of a published logbook


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


def read(path):
    """The rows of a CSV of the logbook as dictionaries, with numbers as floats."""
    where = f"{LOGBOOK}/{path}"
    raw = urlopen(where).read() if "://" in where else Path(where).read_bytes()
    rows = csv.DictReader(io.StringIO(raw.decode()))
    return [{column: number(cell) for column, cell in row.items()} for row in rows]
