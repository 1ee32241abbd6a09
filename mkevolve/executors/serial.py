"""Search workers one after the other in this process."""

from collections.abc import Callable, Iterable, Iterator

from mkevolve.interfaces import Executor, Record, Task


class SerialExecutor(Executor[Task, Record]):
    """Runs each worker to its end before the next; nothing is started, so nothing has to be stopped."""

    def run(
        self, worker: Callable[[Task], Iterator[Record]], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Record]]:
        for task in tasks:
            records = worker(task)
            try:
                for record in records:
                    yield task, record
            finally:
                close = getattr(records, "close", None)  # an iterator need not be a generator
                if close is not None:
                    close()
