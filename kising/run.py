"""A sweep from its file to its tables, in one call: `run_sweep`, which the command `kising run` also uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kising.errors import ShrinkError, StaleError, StoreError
from kising.messages import agree, plural
from kising.report.results import Results
from kising.sweep.drive.conductor import Observer, Policy, conduct
from kising.sweep.drive.cost import CostModel
from kising.sweep.drive.counts import Outcome
from kising.sweep.drive.forecast import Forecast, work_of
from kising.sweep.drive.progress import display_for
from kising.sweep.drive.progress_file import SHOWN_FAILURES, ProgressFile
from kising.sweep.drive.signals import StopRequest
from kising.sweep.execute.protocol import Executor, Need
from kising.sweep.failures import failures_in
from kising.sweep.labels import varied_keys
from kising.sweep.plan import Plan, Run
from kising.sweep.remaining import Stale, Standing
from kising.sweep.reuse import take_over
from kising.sweep.shrinking import orphans, runs_dropped
from kising.sweep.spec import SweepSpec, dump_spec, parse_spec, read_spec, recording_of
from kising.sweep.store.artifacts import lacking_artifacts
from kising.sweep.store.checkpoints import Checkpoints
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.mirror.copying import mirrored
from kising.sweep.store.run_store import Store
from kising.sweep.store.verify import SHOWN
from kising.version import NUMERICS, __version__

if TYPE_CHECKING:
    from kising.recordings import Segments
    from kising.report.tables import Tables
    from kising.sweep.store.index import Scan

_Mask = NDArray[np.bool_]
Say = Callable[[str], object]

# Number of rows of a commit, evenly spaced, that the cost model looks at: a few are enough.
PRICED_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class Session:
    """How a sweep is run: nothing here can change a result."""

    address: str | None = None
    """address of a running Ray cluster; None: use this machine's cores"""
    cpus: int | None = None
    """cores of this machine to use; None: all"""
    in_process: bool = False
    """run everything in this process, without Ray: for debugging"""
    retry_failed: bool = False
    """run failed runs again"""
    fail_fast: bool = False
    """stop at the first failed run"""
    stale: Stale | None = None
    """what to do with runs made by other numerics; None: refuse to continue"""
    shrink: bool = False
    """drop finished runs that the sweep no longer has from the tables; otherwise refuse to run"""
    reuse: Sequence[Path] = ()
    """directories of other sweeps, whose finished runs are taken over where this one has the same"""
    mirror: str | None = None
    """URL of a copy of the directory, from which another machine can continue; None: there is none"""
    command: str = ""
    """the command line, for the manifest"""
    stop: StopRequest = field(default_factory=StopRequest)
    """requests an early end"""
    observers: Sequence[Observer] = ()
    """receive a snapshot about once a second"""
    say: Say = lambda line: None
    """receives messages for the user, one line at a time"""


def run_sweep(
    path_or_spec: str | Path | SweepSpec | Mapping[str, object],
    *,
    out: str | Path | None = None,
    address: str | None = None,
    cpus: int | None = None,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    retry_failed: bool = False,
    fail_fast: bool = False,
    in_process: bool = False,
    stale: Stale | None = None,
    shrink: bool = False,
    reuse: Sequence[str | Path] = (),
    mirror: str | None = None,
    progress: bool | None = None,
) -> Results:
    """Run a sweep, or resume it, and return its tables.

    `path_or_spec` is a sweep file, the directory of a sweep that was run before, a spec, or a mapping with the
    keys of a sweep file. Results go to `out`, by default results/<name>, or results/<name>-<preset>. Runs that are
    already finished there, or in `mirror`, are not run again. `shrink` allows finished runs that an edited sweep no
    longer has to leave the tables. `reuse` names directories of other sweeps, or of published tables: runs that are
    finished there are taken over. `progress` shows the progress; None: in terminals and notebooks.
    """
    spec, directory = locate(path_or_spec, out, preset=preset, overrides=overrides)
    display = display_for(spec.name, progress)
    session = Session(
        address=address,
        cpus=cpus,
        in_process=in_process,
        retry_failed=retry_failed,
        fail_fast=fail_fast,
        stale=stale,
        shrink=shrink,
        reuse=[Path(source) for source in reuse],
        mirror=mirror,
        command="run_sweep",
        observers=() if display is None else (display,),
    )
    with display or nullcontext():
        return run(spec, directory, session)


def locate(
    source: str | Path | SweepSpec | Mapping[str, object],
    out: str | Path | None = None,
    *,
    preset: str | None = None,
    overrides: Sequence[str] = (),
) -> tuple[SweepSpec, Path]:
    """The spec that is meant, and the directory of its results."""
    if isinstance(source, SweepSpec):
        spec = source.changed(preset=preset, overrides=overrides) if preset or overrides else source
    elif isinstance(source, Mapping):
        spec = parse_spec(source, preset=preset, overrides=overrides)
    elif Path(source).is_dir():
        directory = SweepDirectory.open(Path(source))
        spec = read_spec(directory.sweep_file, preset=preset, overrides=overrides)
        out = out if out is not None else source
    else:
        spec = read_spec(source, preset=preset, overrides=overrides)
    spec = spec.current()
    return spec, Path(out) if out is not None else Path("results") / _folder(spec.name, preset)


def _folder(name: str, preset: str | None) -> str:
    """A preset has its own directory: in that of the full sweep, it would drop the other runs from the tables."""
    return f"{name}-{re.sub('[^A-Za-z0-9._-]', '-', preset)}" if preset else name


def run(spec: SweepSpec, path: Path, session: Session) -> Results:
    """Run what is not finished of a sweep in its directory, and write its tables."""
    # Imported here, because it loads pandas, and `plan` and `status` must not wait for that.
    from kising.report.tables import Tables

    plan = Plan.of(spec)
    recording = recording_of(spec.data)
    others = [SweepDirectory.open(source) for source in session.reuse]
    directory = SweepDirectory.create(path)
    with (
        directory.lock(session.command),
        mirrored(session.mirror, directory, spec.name, session.say) as mirror,
    ):
        store = Store.open(directory)
        scan, misfits = store.recover()
        _check_shrinking(plan, scan, directory, session)
        todo, failed = _to_do(plan, store, scan, session)
        if others:
            wanted = plan.ids[todo & ~lacking_artifacts(plan, store)]
            take_over(store, wanted, others, stale=session.stale == "keep", say=session.say)
            after, wrong = store.recover()
            scan, misfits = after._replace(damaged=scan.damaged, inventory=scan.inventory), [*misfits, *wrong]
            todo, failed = _to_do(plan, store, scan, session)
        for line in misfits[:SHOWN]:
            session.say(f"a row was set aside, its run is run again: {line}")
        _report_parts(plan, scan, todo, path, session.say)
        for note in recording.notes if recording is not None else ():
            session.say(f"{spec.data.file}: {note}")
        directory.write_sweep(dump_spec(spec))
        directory.write_manifest(numerics=NUMERICS, command=session.command)
        progress = ProgressFile(directory, varied_keys(spec))
        with progress.session(
            total=plan.n_runs,
            done=int((~todo & ~failed).sum()),
            failed=int(failed.sum()),
            failures=failures_in(store, plan.ids[failed][:SHOWN_FAILURES]),
        ):
            tables = Tables(store, plan)
            if mirror is not None:
                session = replace(session, observers=(mirror, *session.observers))
            outcome = _conduct(plan, todo, failed, store, directory, tables, session, recording, progress)
            progress.finishing()
            store.compact()
            frames = tables.write()
            lacking = plan.n_runs - outcome.unfinished - len(frames.runs)
            if lacking > 0:
                verb = agree(lacking, "is", "are")
                raise StoreError(
                    f"{path}: {plural(lacking, 'finished run')} {verb} missing from the tables, "
                    "because parts vanished or were damaged while this ran: run the same command again"
                )
            progress.end("finished" if not outcome.unfinished else "interrupted")
    return Results.of(frames, path, outcome)


def _check_shrinking(plan: Plan, scan: Scan, directory: SweepDirectory, session: Session) -> None:
    dropped = 0 if session.shrink else runs_dropped(plan, scan, directory)
    if dropped:
        raise ShrinkError(
            f"{directory.path}: {plural(dropped, 'finished run')} there would leave the tables: {_edited(plan)}. "
            "Choose another directory with --out, or add --shrink: the runs stay in parts/, and come back with the "
            "old sweep"
        )


def _edited(plan: Plan) -> str:
    return "the sweep was edited" + ", or its recording changed" * (plan.spec.data.file is not None)


def _to_do(plan: Plan, store: Store, scan: Scan, session: Session) -> tuple[_Mask, _Mask]:
    """Which runs of the plan to run now, and which stay failed, as masks."""
    standing = Standing.of(plan, store, scan, numerics=NUMERICS)
    if standing.stale.any() and session.stale is None:
        raise StaleError(
            f"{standing.stale_note(NUMERICS)}: add --stale keep to keep them or --stale redo to run them again"
        )
    todo = standing.to_do(stale=session.stale, retry_failed=session.retry_failed)
    return todo, standing.failed & ~todo


def _report_parts(plan: Plan, scan: Scan, todo: _Mask, path: Path, say: Say) -> None:
    """Report what is wrong with the parts, and what they hold that is not in the plan."""
    for damaged in scan.damaged:
        say(f"a damaged part was set aside, its runs are run again: {damaged.name}: {damaged.reason}")
    found = scan.inventory
    for name, rows in list(found.vanished.items())[:SHOWN]:
        say(f"a part has vanished, its runs are run again: {name}, with {plural(rows, 'row')}")
    if found.log.state == "damaged" or found.log_was_lost:
        say(
            f"{path / 'parts.log'} was {'damaged' if found.log.lines else 'missing'}: it was rebuilt from the parts"
        )
    for name in scan.strays:
        say(f"{path / 'parts' / name} is not a part: left alone, not read")
    left_out = len(orphans(plan, scan))
    if left_out:
        verb = agree(left_out, "is", "are")
        say(
            f"{plural(left_out, 'finished run')} in {path} {verb} not in this plan ({_edited(plan)}): kept in parts/, "
            "left out of the tables"
        )
    finished = plan.n_runs - int(todo.sum())
    if finished:
        say(f"{finished} of {plan.n_runs} runs are finished already")


def _conduct(
    plan: Plan,
    todo: _Mask,
    failed: _Mask,
    store: Store,
    directory: SweepDirectory,
    tables: Tables,
    session: Session,
    recording: Segments | None,
    progress: ProgressFile,
) -> Outcome:
    total = int(todo.sum())
    resources = plan.spec.resources
    need = Need(cpus=resources.cpus, memory=resources.memory, timeout=resources.timeout)
    costs = CostModel.load()
    checkpoints = Checkpoints(directory, numerics=NUMERICS, say=session.say)
    checkpoints.drop_finished(plan, todo)

    def commit(rows: Sequence[dict[str, object]]) -> None:
        store.commit(rows)
        checkpoints.drop(str(row["run_id"]) for row in rows)
        store.compact()
        some = rows[:: -(-len(rows) // PRICED_ROWS)] if rows else ()
        for index, row in zip(plan.order([str(row["run_id"]) for row in some]), some, strict=True):
            costs.learn(plan.run(int(index)).point, row)
        tables.refresh()

    with closing(_executor(session, recording, idle=not total)) as executor:
        outcome = conduct(
            _chosen(plan, todo),
            executor,
            commit,
            cost=costs.of_run(),
            need=lambda _: need,
            total=total,
            done_before=int((~todo & ~failed).sum()),
            failed_before=int(failed.sum()),
            stamp={"numerics": NUMERICS, "version": __version__},
            policy=Policy(fail_fast=session.fail_fast, checkpoint_seconds=resources.checkpoint),
            stop=session.stop,
            observers=(progress, *session.observers),
            checkpoint_store=checkpoints,
            forecast=Forecast(work_of(plan, todo, costs), costs),
        )
    for reason, count in checkpoints.refused.items():
        verb = agree(count, "was", "were")
        session.say(f"{plural(count, 'checkpoint')} of long runs {verb} not kept: {reason}")
    costs.settle()
    costs.save()
    return outcome


def _chosen(plan: Plan, todo: _Mask) -> Iterator[Run]:
    if todo.all():
        yield from plan.runs()
    else:
        for index in np.flatnonzero(todo):
            yield plan.run(int(index))


def _executor(session: Session, recording: Segments | None, *, idle: bool) -> Executor:
    # Imported here: `--help`, `plan` and `status` must not wait for Ray or the compiler.
    from kising.sweep.execute.in_process import InProcessExecutor
    from kising.sweep.task import perform

    # Where nothing is left to run, no Ray is started for it.
    if session.in_process or idle:
        return InProcessExecutor(partial(perform, recording=recording) if recording is not None else perform)
    from kising.sweep.execute.ray_cluster import RayCluster
    from kising.sweep.execute.ray_executor import RayExecutor

    shared = (
        0 if recording is None else recording.n_steps * (recording.n_visible + 8 * recording.n_covariates)
    )
    cluster = (
        RayCluster.join(session.address) if session.address else RayCluster.start(session.cpus, shared=shared)
    )
    return RayExecutor(perform, cluster, recording)
