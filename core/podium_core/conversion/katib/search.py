"""Katib's `algorithm` and `earlyStopping`: the search and the policy of the job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from podium_core.conversion.algorithms import ARCHITECTURE_SEARCH, KATIB, SEED, Algorithm, search_of
from podium_core.conversion.fields import Fields, Manifest, number_of, shown
from podium_core.conversion.given import Given, seed_of
from podium_core.conversion.katib.population import katib_population
from podium_core.conversion.katib.settings import Setting, settings_of
from podium_core.schema.search.population_settings import PBT
from podium_core.schema.search.settings import KNOWN

DEFAULT_ETA, DEFAULT_MIN_TRIALS = 3, 3
MAX_RUNGS = 10


class KatibSearch(NamedTuple):
    """The search, the policy that cuts trials, and the parameters that the search fixes.

    `max_steps` is the step at which a trial is complete, where the algorithm says it. `scratch` is a folder that each
    trial expects, `checkpoints` one that other trials must be able to copy. `size`: trials of a population, or 0.
    """

    search: Manifest
    policy: Manifest | None = None
    policy_path: str = ""
    fixed: Mapping[str, int | float] = {}
    max_steps: float | None = None
    scratch: str | None = None
    checkpoints: str | None = None
    size: int = 0


def katib_search(spec: Fields, given: Given) -> KatibSearch | None:
    """Return what `algorithm` and `earlyStopping` become; None for a search of architectures."""
    max_steps = given.max_steps
    source = spec.fields("algorithm", required=True)
    name = source.text("algorithmName", required=bool(source.path))
    settings = settings_of(source)
    source.finish("Katib")
    if name is None:
        return KatibSearch({})
    where = source.at("algorithmName")
    if name in ARCHITECTURE_SEARCH:
        text = f"{shown(name)} searches the architecture of a network, which Podium does not: keep it in Katib"
        spec.report.refuse(where, f"{text}, or list the choices as parameters and search them with tpe")
        return None
    algorithm = KATIB.get(name)
    if algorithm is None:
        text = f"{shown(name)} is not an algorithm that Podium knows: use one of {', '.join(KATIB)}"
        spec.report.refuse(where, text)
        return KatibSearch({})
    search = search_of(algorithm, name, where, spec.report)
    _apply(search, algorithm, name, settings, spec)
    made = KatibSearch(search)
    if name == "hyperband":
        made = _hyperband(search, settings, source, max_steps)
    elif name == PBT:
        most = given.max_trials or number_of(spec.raw("maxTrialCount"))
        whole = katib_population(settings, source, most, max_steps)
        scratch, kept = (None, whole.folder) if whole.size else (whole.folder, None)
        made = KatibSearch(whole.search, scratch=scratch, checkpoints=kept, size=whole.size)
    early = _early_stopping(spec, made.max_steps or max_steps)
    if early is None:
        return made
    if made.policy is not None or made.checkpoints is not None:
        text = f"{name} itself ends bad trials: remove earlyStopping"
        spec.report.refuse(spec.at("earlyStopping"), text)
    return made._replace(policy=early, policy_path=spec.at("earlyStopping"))


def _apply(search: Manifest, algorithm: Algorithm, name: str, settings: Mapping[str, Setting], spec: Fields) -> None:
    """Write the settings that Podium has into `search`; note those that it has not."""
    for key, setting in settings.items():
        if key not in algorithm.settings:
            known = ", ".join(algorithm.settings)
            text = f"{key} is not a setting of {name}: remove it (settings: {known})"
            spec.report.refuse(setting.path, text, "UnknownSetting")
            continue
        target = algorithm.settings[key]
        if target is not None and (target == SEED or target in KNOWN[algorithm.chosen]):
            number = number_of(setting.value)
            if not isinstance(number, int) or number < 0:
                text = f"{key} must be a whole number of at least 0, not {shown(setting.value)}"
                spec.report.refuse(setting.path, text, "InvalidValue")
            elif target == SEED:
                search["seed"] = seed_of(number, setting.path, spec.report)
            else:
                search.setdefault("settings", {})[target] = max(number, 1)
        elif name not in ("hyperband", PBT):
            spec.report.note(setting.path, f"{key} = {setting.value} has no counterpart in Podium and is left out")


def _hyperband(search: Manifest, settings: Mapping[str, Setting], source: Fields, given: float | None) -> KatibSearch:
    """Return Podium's Hyperband: its policy decides how long a trial trains, so the resource has one value."""
    path, report = source.at("algorithmSettings"), source.report
    resource, longest = settings.get("resource_name"), settings.get("r_l")
    most = None if longest is None else number_of(longest.value)
    eta = number_of(settings["eta"].value) if "eta" in settings else DEFAULT_ETA
    if resource is None or longest is None:
        report.refuse(path, "hyperband needs the settings resource_name and r_l: add them", "Required")
        return KatibSearch(search)
    if most is None or most < 1:
        report.refuse(longest.path, f"r_l must be a number of at least 1, not {shown(longest.value)}", "InvalidValue")
        return KatibSearch(search)
    if eta is None or eta < 2:
        report.refuse(
            settings["eta"].path, f"eta must be at least 2, not {shown(settings['eta'].value)}", "InvalidValue"
        )
        return KatibSearch(search)
    rungs = max(1, min(MAX_RUNGS, math.floor(math.log(most) / math.log(eta) + 1e-9)))
    text = (
        f"{resource.value} is no longer a parameter: every trial is started with {most:g}, and policy hyperband "
        f"suspends it at rungs below. Print a value for each unit of {resource.value}"
    )
    report.note(path, text)
    policy = {"name": "hyperband", "settings": {"eta": eta, "rungs": rungs}}
    steps = float(most) if given is None else given
    return KatibSearch(search, policy, path, {resource.value: most}, steps)


def _early_stopping(spec: Fields, max_steps: float | None) -> Manifest | None:
    """Return the policy for Katib's median stopping; None without earlyStopping."""
    if spec.raw("earlyStopping") is None:
        return None
    source = spec.fields("earlyStopping")
    name, settings = source.text("algorithmName", required=True), settings_of(source)
    source.finish("Katib")
    if name is None:
        return None
    if name != "medianstop":
        text = f"{shown(name)} is not known: use medianstop, or choose one of Podium's policies in the converted job"
        spec.report.refuse(source.at("algorithmName"), text)
        return None
    numbers: dict[str, int] = {}
    for key, setting in settings.items():
        number = number_of(setting.value)
        if key not in ("min_trials_required", "start_step"):
            text = f"{key} is not a setting of medianstop: remove it (settings: min_trials_required, start_step)"
            spec.report.refuse(setting.path, text, "UnknownSetting")
        elif not isinstance(number, int) or number < 1:
            text = f"{key} must be a whole number of at least 1, not {shown(setting.value)}"
            spec.report.refuse(setting.path, text, "InvalidValue")
        else:
            numbers[key] = number
    made: Manifest = {"peers": numbers.get("min_trials_required", DEFAULT_MIN_TRIALS)}
    start = numbers.get("start_step")
    if start is not None and max_steps is not None:
        made["grace"] = min(1.0, start / max_steps)
    elif start is not None:
        text = f"start_step = {start} needs the length of a trial: give --max-steps N, or Podium judges from a tenth on"
        spec.report.note(settings["start_step"].path, text)
    spec.report.note(
        source.at("algorithmName"),
        "policy median_stop compares with the median of the other trials at the same step; Katib's medianstop "
        "compares with the mean of the completed trials' first values",
    )
    return {"name": "median_stop", "settings": made}
