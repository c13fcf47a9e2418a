"""The `command` of a W&B sweep as the command of the trial's container."""

from __future__ import annotations

import re
from collections.abc import Sequence

from podium_core.conversion.fields import Fields, Report
from podium_core.conversion.wandb.parameters import Constant, Space

DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
MAX_WORDS = 256  # of the command of a container
_MACRO = re.compile(r"\$\{([^}]{1,256})\}")
_NONE: dict[str, str] = {
    "args_json": "read PODIUM_PARAMS, which holds the parameters as JSON, instead",
    "args_json_file": "read PODIUM_PARAMS, which holds the parameters as JSON, instead",
}


def wandb_command(sweep: Fields, program: str | None, space: Space) -> list[str]:
    """Return the command of a trial."""
    given = sweep.texts("command") if sweep.raw("command") is not None else None
    words = [(sweep.at("command"), word) for word in DEFAULT] if given is None else given
    made: list[str] = []
    for path, word in words:
        made += _word(word, path, program, space, sweep.report)
        if len(made) > MAX_WORDS:
            text = f"more than {MAX_WORDS} words: let a file of the image hold the constants"
            sweep.report.refuse(sweep.at("command"), text)
            return made[:MAX_WORDS]
    return made


def _word(word: str, path: str, program: str | None, space: Space, report: Report) -> Sequence[str]:
    """Return the words for one word of the command."""
    names = _MACRO.findall(word)
    if not names:
        return [word]
    if word == "${env}":
        return []
    if word == "${interpreter}":
        return ["python"]
    if word == "${program}":
        if program is None:
            report.refuse("program", "is required, since the command names ${program}", "Required")
        return [program or ""]
    if word == "${args}":
        return ["$(podium.args)", *(f"--{name}={_text(value)}" for name, value in space.constants.items())]
    if word == "${args_no_hyphens}":
        drawn = [f"{one['name']}=$(podium.params.{one['name']})" for one in space.parameters]
        return [*drawn, *(f"{name}={_text(value)}" for name, value in space.constants.items())]
    if word == "${args_no_boolean_flags}":
        return _flags(path, space, report)
    cure = _NONE.get(names[0], "write the word itself")
    if names[0].startswith("envvar:"):
        cure = "set the variable in the template of the converted job, and let the script read it"
    report.refuse(path, f"${{{names[0]}}} has no counterpart: {cure}")
    return []


def _flags(path: str, space: Space, report: Report) -> list[str]:
    """Return the arguments where a true boolean is a flag, and a false one is left out."""
    for one in space.parameters:
        if any(isinstance(value, bool) for value in one.get("values", ())):
            text = f"a flag --{one['name']} cannot depend on a parameter: let the script take --{one['name']}=true"
            report.refuse(path, f"{text}, and write ${{args}}")
    made = ["$(podium.args)"]
    for name, value in space.constants.items():
        if value is not False:
            made.append(f"--{name}" if value is True else f"--{name}={_text(value)}")
    return made


def _text(value: Constant) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
