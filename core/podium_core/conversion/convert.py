"""Convert the searches of a file into HyperParamJobs. What is wrong in the file is in the result; nothing raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from podium_core.acceptance.findings import errors_of, findings
from podium_core.conversion.fields import MAX_DEPTH, MAX_VALUES, Manifest, Note, Report, shown, too_large
from podium_core.conversion.given import Given
from podium_core.conversion.katib.experiment import convert_experiment, is_experiment
from podium_core.conversion.optimization_job import convert_optimization_job, is_optimization_job
from podium_core.conversion.sources import tool_of
from podium_core.conversion.wandb.sweep import convert_sweep
from podium_core.schema.manifests import flattened
from podium_core.schema.rules import Refusal

MAX_DOCUMENTS = 256  # of a file


@dataclass(frozen=True, slots=True)
class Converted:
    """One converted search: its name, the job, and what is different. With refusals, there is no job."""

    name: str
    job: Manifest | None
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = field(default_factory=tuple)


def convert(documents: Sequence[Manifest], given: Given | None = None) -> tuple[Converted, ...]:
    """Return the searches of these documents in order; other objects serve only as references."""
    options = given or Given()
    if len(documents) > MAX_DOCUMENTS or too_large(list(documents)):
        text = f"the file is too large: convert at most {MAX_DOCUMENTS} documents and {MAX_VALUES} values at a time, "
        return (Converted("", None, (), (Refusal("FileTooLarge", "", f"{text}nested at most {MAX_DEPTH} deep"),)),)
    flat = list(flattened(documents))
    searches = [one for one in flat if tool_of(one) is not None]
    others = [one for one in flat if tool_of(one) is None]
    if options.name is not None and len(searches) > 1:
        refusal = Refusal("NameAmbiguous", "metadata.name", f"--name {options.name} would name {len(searches)} jobs")
        return (Converted("", None, (), (refusal,)),)
    return tuple(_one(search, others, options) for search in searches)


def _one(search: Manifest, others: Sequence[Manifest], given: Given) -> Converted:
    report = Report()
    if is_experiment(search):
        job = convert_experiment(search, others, given, report)
    elif is_optimization_job(search):
        job = convert_optimization_job(search, others, given, report)
    else:
        job = convert_sweep(search, given, report)
    name = str(job["metadata"].get("name") or "without a name")
    if not report.refusals:
        found = findings(job)
        for error in errors_of(found):
            report.refuse(f"converted job: {error.field}", error.message, error.code)
        for warning in found if not report.refusals else ():
            report.note(f"converted job: {warning.field}", f"{warning.code}: {warning.message}")
    refused = bool(report.refusals)
    return Converted(shown(name).strip('"'), None if refused else job, tuple(report.notes), tuple(report.refusals))
