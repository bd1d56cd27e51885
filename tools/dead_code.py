"""Finds dead code: names that vulture sees defined and nowhere read. Part of `./dev check`.

The product, the benchmark, the simulator and the tools are looked at without the tests: what only a test
calls is dead as well, unless ALLOWED has it with its reason. An entry that nothing needs is reported.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "bench", "sim", "chaos", "tools")
TESTS = "tests"
LEAST_SURE_PERCENT = 60

_PROTOCOL = "asyncio calls it"
_SERVER = "the class of http.server or socketserver reads it"
_SPARK = "Spark calls it"
_RECORD = "the official client makes a record's fields of these"
_UVICORN = "uvicorn reads or calls it"
_CLICK = "click calls it"
_MEASURE = "what a test of a bound measures; nothing else shows it from outside"
_STORED = "a field of what is stored: written and read with all fields at once"
_ARCHIVE = "the archive writer reads it"
_SUITE = "the suite that is run calls it"

ALLOWED = {
    "src/magnetar/admin": dict.fromkeys(("main_loop", "should_exit", "handshake_complete"), _UVICORN),
    "src/magnetar/arrow/message_columns.py": dict.fromkeys(
        ("entry_index", "broker_time"), "columns are made by name, see `_of_message`"
    ),
    "src/magnetar/server/storage/storage_decisions.py": {"seen_seconds": "a key of a document"},
    "src/magnetar/cli/topics/transactions.py": dict.fromkeys(
        ("openTimestamp", "timeoutAt", "producedPartitions", "ackedPartitions"), "keys of a document"
    ),
    "src/magnetar/auth/https_fetch.py": {"redirect_request": "urllib calls it"},
    "src/magnetar/bookie": {"sizehint": _PROTOCOL, "sorted_segments": _MEASURE},
    "src/magnetar/broker": {
        "sizehint": _PROTOCOL,
        "eof_received": _PROTOCOL,
        "in_memory": _MEASURE,
        "TICK_MS": "the promise that tests hold the wheel of times to",
        "share_bytes_max": _MEASURE,
        "REFUSE": "a value of Pulsar's that policies name",
    },
    "src/magnetar/cli": dict.fromkeys(
        ("can_i", "check_cluster", "decommission", "list_backups", "completion", "show_", "explain_",
         "salvage", "create_secret_key", "set_password", "format_commands", "get_metavar"),
        _CLICK,
    ),
    "src/magnetar/functions/config/given.py": dict.fromkeys(
        ("autoAck", "batchBuilder", "batchingConfig", "batchingMaxBytes", "batchingMaxMessages",
         "batchingMaxPublishDelayMs", "className", "cleanupSubscription", "consumerCryptoFailureAction",
         "consumerProperties", "cryptoConfig", "cryptoKeyReaderClassName", "cryptoKeyReaderConfig",
         "customRuntimeOptions", "customSchemaInputs", "customSchemaOutputs", "customSerdeInputs",
         "deadLetterTopic", "encryptionKeys", "forwardSourceMessageProperty", "fqfn", "inputSpecs",
         "inputTypeClassName", "isRegexPattern", "lateDataTopic", "logLevel", "logTopic", "maxLagMs",
         "maxMessageRetries", "maxPendingAsyncRequests", "maxPendingMessages",
         "maxPendingMessagesAcrossPartitions", "outputSchemaType", "outputSerdeClassName",
         "outputTypeClassName", "poolMessages", "processingGuarantees", "producerConfig",
         "producerCryptoFailureAction", "py", "receiverQueueSize", "regexPattern", "retainKeyOrdering",
         "retainOrdering", "roundRobinRouterBatchingPartitionSwitchFrequency", "runtimeFlags",
         "schemaProperties", "schemaType", "serdeClassName", "skipToLatest", "slidingIntervalCount",
         "slidingIntervalDurationMs", "subName", "subscriptionPosition", "timeoutMs",
         "timestampExtractorClassName", "topicsPattern", "useThreadLocalProducers", "userConfig",
         "watermarkEmitIntervalMs", "windowConfig", "windowLengthCount", "windowLengthDurationMs"),
        "keys of a document",
    ),
    "src/magnetar/cli/functions/functions.py": dict.fromkeys(
        ("exceptionString", "numRestarts", "numReceived", "numSuccessfullyProcessed",
         "numUserExceptions", "latestUserExceptions"),
        "keys of a document",
    ),
    "chaos/transactions/places.py": {"START_DEADLINE_S": "the servers of the tests' helpers read it"},
    "src/magnetar/functions/local/local_run.py": {"dont_write_bytecode": "Python's imports read it"},
    "src/magnetar/functions/workers/instance_program.py": {"dont_write_bytecode": "Python's imports read it"},
    "src/magnetar/functions/sdk/context.py": dict.fromkeys(
        ("get_message_id", "get_message_key", "get_partition_key", "get_ordering_key",
         "get_message_eventtime", "get_message_properties", "get_current_message_topic_name",
         "get_message_sequence_id", "get_message_partition_index", "get_function_tenant",
         "get_function_namespace", "get_function_name", "get_function_id", "get_function_version",
         "get_instance_id", "get_logger", "get_user_config_value", "get_user_config_map", "get_secret",
         "record_metric", "get_input_topics", "get_output_topic", "get_output_serde_class_name",
         "get_pulsar_client", "incr_counter", "get_counter", "del_counter", "del_state"),
        "users' functions call it: docs/functions.md",
    ),
    "src/magnetar/client/transforming.py": {"transform": "users' programs call it: docs/transactions.md"},
    "src/magnetar/proxy/introduction.py": {"supports_topic_watchers": "a field of a protobuf message"},
    "src/magnetar/proxy/splice.py": {"sizehint": _PROTOCOL, "eof_received": _PROTOCOL},
    "src/magnetar/demo/__main__.py": {"signum": "signal handlers are given it"},
    "src/magnetar/demo/alerts.py": {"ok": "the verdict in one word, for tests of the demo"},
    "src/magnetar/demo/topics.py": dict.fromkeys(
        ("distance_mi", "temp_f_x100", "wind_mph_x100", "visib_mi_x100", "precip_in_x100", "dest_name"),
        _RECORD,
    ),
    "src/magnetar/flightsql/connection.py": {
        "local_settings": "h2 reads it",
        "max_header_list_size": "hpack reads it",
    },
    "src/magnetar/history/files.py": {"seekable": "pyarrow calls it"},
    "src/magnetar/ledger/client/connection.py": {"sizehint": _PROTOCOL},
    "src/magnetar/managedlog/info.py": {"cached_bytes": _MEASURE},
    "src/magnetar/observability/logs.py": dict.fromkeys(
        ("logThreads", "logProcesses", "logMultiprocessing"), "switches of the module `logging`"
    ),
    "src/magnetar/spark": dict.fromkeys(
        ("pushFilters", "streamReader", "streamWriter", "initialOffset", "latestOffset",
         "getDefaultReadLimit", "reportLatestOffset", "prepareForTriggerAvailableNow",
         "onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated"),
        _SPARK,
    ),
    "src/magnetar/spark/pipelines/script.py": {"disabled": "the module `logging` reads it"},
    "src/magnetar/spark/progress/endpoints.py": {
        "do_GET": _SERVER,
        "log_message": _SERVER,
        "daemon_threads": _SERVER,
    },
    "src/magnetar/tiered/parquet/parquet_history.py": dict.fromkeys(
        ("broker_time_min_ms", "broker_time_max_ms", "row_groups"), _STORED
    ),
    "src/magnetar/wire/features.py": {"CPP_CLIENT_COMMANDS": "the rule that tests hold encoders to"},
    "sim/cluster/loop.py": dict.fromkeys(
        ("call_at", "_timer_handle_cancelled", "get_debug", "executor"), "asyncio calls it on its loop"
    ),
    "chaos": dict.fromkeys(("redirect_request", "fp"), "urllib calls it"),
    "tools/dead_code.py": dict.fromkeys(("ignore_names", "ignore_decorators"), "vulture reads it"),
    "tools/environment.py": {"signum": "signal handlers are given it"},
    "tools/suite_container.py": dict.fromkeys(
        ("with_env", "with_bind_ports", "with_command", "get_wrapped_container"), _SUITE
    ),
    "tools/supply/building.py": dict.fromkeys(
        ("gid", "gname", "uname", "pax_headers", "create_system", "compress_type"), _ARCHIVE
    ),
}  # fmt: skip
"""File or folder, name, and why it stays although nothing here reads it."""

TEST_NAMES = [
    "pytestmark",  # pytest reads it
    "pytest_*",
    "Test*",  # hypothesis' machines as pytest finds them
    *("do_*", "log_message", "daemon_threads", "handle_one_request", "close_connection"),  # http.server
    "disable_nagle_algorithm",  # socketserver
    "redirect_request",  # urllib
    "Export",  # a service of gRPC
    "recreate",  # a step of stories, called by its name
    *("marker_type", "txnid_most_bits"),  # fields of protobuf messages
    "external_attr",  # zipfile
]
TEST_DECORATORS = ["@pytest.fixture", "@pytest.fixture*", "@rule", "@rule*", "@invariant*", "@initialize*"]


def complaints() -> list[str]:
    """One line for each name that is dead, and for each entry of ALLOWED that nothing needs."""
    vulture = Vulture()
    needed: set[tuple[str, str]] = set()
    said = []
    for path, name, line in _unused(vulture, FOLDERS):
        places = [place for place, allowed in ALLOWED.items() if name in allowed and _within(path, place)]
        needed.update((place, name) for place in places)
        if not places:
            said.append(f"{path}:{line}: {name} is unused, or used by tests alone")
    said += [
        f"{Path(__file__).name}: {place} needs no exception for {name} any more"
        for place, allowed in ALLOWED.items()
        for name in allowed
        if (place, name) not in needed
    ]
    vulture.ignore_names, vulture.ignore_decorators = TEST_NAMES, TEST_DECORATORS
    found = _unused(vulture, (TESTS,))
    dead = [f"{path}:{line}: {name} is unused" for path, name, line in found if _within(path, TESTS)]
    return said + dead


def _unused(vulture: Vulture, folders: tuple[str, ...]) -> list[tuple[str, str, int]]:
    """Path, name and line of each name that no code uses, when vulture also reads these folders."""
    vulture.scavenge([str(ROOT / folder) for folder in folders], exclude=["*_pb2.py", "*_pb2.pyi"])
    return [
        (Path(item.filename).resolve().relative_to(ROOT.resolve()).as_posix(), item.name, item.first_lineno)
        for item in vulture.get_unused_code(min_confidence=LEAST_SURE_PERCENT)
    ]


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def main() -> int:
    """Prints what is dead; the exit code is 0 when nothing is."""
    said = complaints()
    print("\n".join(said) or "nothing is dead")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
