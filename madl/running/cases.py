"""A program that `verify` starts in two states of the code: it executes given cases in a store.

    python -m madl.running.cases CASES STORE RECORDS THREADS

CASES is a JSON file, a list of the fields of `Case`; a line is added to RECORDS after each case.
"""

import json
import sys
from pathlib import Path

from madl.files import LIBRARY
from madl.logbook.records import Case, Store, encode
from madl.machine import lifeline
from madl.running import runner


def main(cases: str, store: str, records: str, threads: str) -> None:
    with lifeline.guarded(Path(store) / "tmp"), Path(records).open("w", encoding="utf-8") as file:
        runner.start_process(int(threads))
        for fields in json.loads(Path(cases).read_text("utf-8")):
            record = runner.execute(LIBRARY, Store(Path(store)), "cpu", 1, Case(**fields))
            file.write(encode(record) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
