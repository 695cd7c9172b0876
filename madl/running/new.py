"""The command `new`: the folder and the question of a page of one's own, which run as they are."""

import keyword
import re
from pathlib import Path

from madl.errors import WrongCommand
from madl.files import LIBRARY, read_text, write_atomically
from madl.logbook.experiment import TUNING
from madl.running.project import RESTORE, SITE_PAGES, Project

MODEL = LIBRARY / "templates" / "new"
OWN_LAB = 5  # the lab's number in ids of a student's own questions: 5.1, 5.2, …


def create(project: Project, stem: str) -> tuple[str, list[Path]]:
    """Write the files and the question of a new page; returns the question's id and the paths.

    Raises:
        WrongCommand: a stem that cannot be a page's, or is one already.
    """
    _check(project, stem)
    words = [word for word in stem.split("_") if word and not word[0].isdigit()]
    own = (re.fullmatch(rf"{OWN_LAB}\.(\d+)", q.id) for q in project.questions)
    numbers = [int(match[1]) for match in own if match]
    id = f"{OWN_LAB}.{1 + max(numbers, default=0)}"
    filled = {"STEM": stem, "TITLE": " ".join(words).capitalize(), "ID": id}
    folder, questions = project.experiments / stem, project.experiments / "questions.toml"
    asked = read_text(questions, RESTORE).rstrip("\n") + "\n"
    texts = {
        **{folder / name: _filled(name, filled) for name in ("design.py", "page.md.j2", "page.py")},
        questions: asked + _filled("question.toml", filled),
    }
    for path, text in texts.items():
        write_atomically(path, text)
    return id, list(texts)


def _filled(name: str, words: dict[str, str]) -> str:
    """The text of a template in which STEM, TITLE and ID are replaced by `words`."""
    text = read_text(MODEL / name, RESTORE)
    return re.sub(r"\b(STEM|TITLE|ID)\b", lambda match: words[match[0]], text)


def _check(project: Project, stem: str) -> None:
    """Raises: WrongCommand: the stem cannot be a page's name, or is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", stem) or keyword.iskeyword(stem) or len(stem) > 60:
        raise WrongCommand(
            f"{stem!r} cannot be a page's name; use lower-case letters, digits and _, beginning "
            "with a letter, for example my_question"
        )
    taken = [project.experiments / stem, project.docs / f"{stem}.md", project.docs / stem]
    taken = [path for path in taken if path.exists()]
    if stem.endswith(TUNING):
        raise WrongCommand(f"{stem!r} cannot be a page's name: {TUNING} ends that of its tuning")
    if stem in SITE_PAGES or taken or stem in {q.stem for q in project.questions}:
        by = taken[0].relative_to(taken[0].parents[1]) if taken else "a page of the logbook"
        raise WrongCommand(f"{stem!r} is taken ({by}); choose another name")
