"""The worker process: `python -m magnetar.history.history_worker <socket fd> <niceness> <memory fd>`.

It serves the process that started it until that process closes the socket or ends. It uses one core, to leave
the others to clients.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib.abc import MetaPathFinder


class NoPandas(MetaPathFinder):
    """Makes `import pandas` fail.

    pyarrow imports an installed pandas with the first array, to recognise its types. That costs a second and
    60 MB without any use here.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raises ModuleNotFoundError for pandas; returns None for other modules."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=fullname)


def main() -> None:
    """Serves a socket. Arguments of the process: descriptor of the socket; nice value, 0 when a caller waits
    for the results; descriptor of the shared memory, -1 for none."""
    niceness = int(sys.argv[2])
    os.nice(niceness)
    sys.meta_path.insert(0, NoPandas())
    import pyarrow as pa

    from magnetar.history.serving import HistoryConnection, HistoryServer
    from magnetar.history.yielding import Yielding
    from magnetar.tiered.parquet.handover import Handover

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with socket.socket(fileno=int(sys.argv[1])) as stream:
        memory = int(sys.argv[3])
        connection = HistoryConnection(stream, Handover(memory) if memory >= 0 else None)
        HistoryServer(connection, Yielding() if niceness else None).serve()


if __name__ == "__main__":
    main()
