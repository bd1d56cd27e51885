"""The worker process: `python -m magnetar.history.history_worker <socket fd> <niceness> <memory fd>`.

Serves the process that started it until that closes the socket, however it ended. Runs on one core: clients
come first.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib.abc import MetaPathFinder


class NoPandas(MetaPathFinder):
    """Tells pyarrow that there is no pandas.

    Where it is installed, pyarrow imports it as soon as it makes an array, to recognise its types: a second
    and 60 MB for nothing.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raises ModuleNotFoundError for pandas; other finders find the rest."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=fullname)


def main() -> None:
    """Serves the socket whose number is the first argument. The second is the niceness: 0 when a caller waits
    for the results. The third is the shared memory's descriptor, -1 for none."""
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
