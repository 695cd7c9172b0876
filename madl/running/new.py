"""A page of one's own: its folder and its question, which run as they are."""

import keyword
import re
from pathlib import Path

from madl.errors import WrongCommand
from madl.files import read_text, write_atomically
from madl.logbook.experiment import TUNING
from madl.running.project import RESTORE, Project

MODEL = Path(__file__).resolve().parents[2] / "templates" / "new"
OWN_LAB = 5  # the number before the point of questions that nobody has asked but the student
NOT_FREE = ("index", "ledger", "reported")


def create(project: Project, stem: str) -> tuple[str, list[Path]]:
    """Write the three; returns the question's id and the files.

    Raises:
        WrongCommand: a stem that cannot be a page's, or is one already.
    """
    _check(project, stem)
    words = [word for word in stem.split("_") if word and not word[0].isdigit()]
    own = (re.fullmatch(rf"{OWN_LAB}\.(\d+)", q.id) for q in project.questions)
    numbers = [int(found[1]) for found in own if found]
    id = f"{OWN_LAB}.{1 + max(numbers, default=0)}"
    filled = {"STEM": stem, "TITLE": " ".join(words).capitalize(), "ID": id}
    folder, questions = project.experiments / stem, project.experiments / "questions.toml"
    asked = read_text(questions, RESTORE).rstrip("\n") + "\n"
    texts = {
        folder / "page.md.j2": _filled("page.md.j2", filled),
        folder / "page.py": _filled("page.py", filled),
        questions: asked + _filled("question.toml", filled),
    }
    for path, text in texts.items():
        write_atomically(path, text)
    return id, list(texts)


def _filled(name: str, words: dict[str, str]) -> str:
    text = read_text(MODEL / name, RESTORE)
    return re.sub(r"\b(STEM|TITLE|ID)\b", lambda found: words[found[0]], text)


def _check(project: Project, stem: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", stem) or keyword.iskeyword(stem) or len(stem) > 60:
        raise WrongCommand(
            f"{stem!r} cannot be a page's name; use lower-case letters, digits and _, beginning "
            "with a letter, for example my_question"
        )
    taken = [project.experiments / stem, project.docs / f"{stem}.md", project.docs / stem]
    there = next((path for path in taken if path.exists()), None)
    if stem.endswith(TUNING):
        raise WrongCommand(f"{stem!r} cannot be a page's name: {TUNING} ends that of its tuning")
    if stem in NOT_FREE or there is not None or stem in {q.stem for q in project.questions}:
        what = there.relative_to(there.parents[1]) if there else "a page of the logbook"
        raise WrongCommand(f"{stem!r} is taken ({what}); choose another name")
