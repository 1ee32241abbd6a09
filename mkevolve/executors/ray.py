"""Search workers as Ray actors: one per task, as many at once as there are processors."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic

from mkevolve.errors import BackendError, ConfigError
from mkevolve.interfaces import Executor, Record, Task

_PATIENCE = 5.0  # seconds for a worker to end what it started; one in the middle of a trial takes longer


class _Worker(Generic[Task, Record]):
    """Holds one worker's iterator. `advance` runs it to its next record: it never runs ahead of a commit."""

    def __init__(self, worker: Callable[[Task], Iterator[Record]], task: Task) -> None:
        self._records = worker(task)

    def advance(self) -> tuple[Record, ...]:
        """Return the next record, or an empty tuple at the end."""
        return tuple(record for _, record in zip(range(1), self._records, strict=False))

    def close(self) -> None:
        """End what the iterator started."""
        close = getattr(self._records, "close", None)
        if close is not None:
            close()


class RayExecutor(Executor[Task, Record]):
    """Starts Ray on the first batch, or joins the cluster at `address`; usage reports are off.

    `workers` bounds how many searches run at once; None = one a CPU of the cluster.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._address = address
        self._workers = workers

    def run(
        self, worker: Callable[[Task], Iterator[Record]], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Record]]:
        waiting = list(reversed(list(tasks)))
        if not waiting:
            return
        ray = self._start()
        limit = self._workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        # num_cpus=1 for scheduling; the actor itself spends its time waiting for its children
        actor_class = ray.remote(num_cpus=1, max_restarts=0)(_Worker)
        running: dict[Any, tuple[Any, Task]] = {}
        actors: list[Any] = []  # those in `running`, and the one whose record is being taken
        try:
            while waiting or running:
                while waiting and len(running) < limit:
                    task = waiting.pop()
                    actor = actor_class.remote(worker, task)
                    actors.append(actor)
                    running[actor.advance.remote()] = (actor, task)
                ready, _ = ray.wait(list(running), num_returns=1)
                actor, task = running.pop(ready[0])
                records = _fetch(ray, ready[0])
                if not records:
                    actors.remove(actor)
                    ray.kill(actor)
                    continue
                yield task, records[0]
                running[actor.advance.remote()] = (actor, task)
        finally:
            _end(ray, actors)

    def _start(self) -> Any:  # the module: ray is optional and untyped
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                "executor=ray needs Ray: pip install 'mkevolve[ray]', or executor=serial"
            ) from error
        # Ray would kill a worker's children with it, before they have removed what they wrote
        os.environ.setdefault("RAY_kill_child_processes_on_worker_exit", "false")
        if not ray.is_initialized():
            try:
                with _own_signals():
                    ray.init(
                        address=self._address,
                        include_dashboard=False if self._address is None else None,
                        configure_logging=True,
                        logging_level=logging.ERROR,
                        log_to_driver=False,
                    )
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise ConfigError(
                    f"cannot reach Ray at ray.address={self._address}: {error}; "
                    "start it or use executor=serial"
                ) from error
        return ray


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handlers: Ray's own for SIGTERM would end it without a word to anybody."""
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # no handlers can be set here, by Ray neither
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _end(ray: Any, actors: list[Any]) -> None:
    """Let the workers close what they started, then kill them.

    Those that cannot in time are in the middle of a trial: their children end and clean up by themselves.
    """
    try:
        closing = [actor.close.remote() for actor in actors]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_PATIENCE)
    finally:
        for actor in actors:
            ray.kill(actor)


def _fetch(ray: Any, reference: Any) -> tuple[Any, ...]:
    try:
        records: tuple[Any, ...] = ray.get(reference)
    except ray.exceptions.RayActorError as error:
        raise BackendError(f"a search worker died: {error}; run the same command again to go on") from error
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, Exception) else error from None
    return records
