#!/bin/sh
# Writes src/magnetar/wire/pulsar_pb2.py and .pyi from pulsar.proto, and bookkeeper/bookkeeper_pb2 in the same way.
# Usage: [PYTHON=path/to/python] tools/generate_protocol.sh
# Needs grpcio-tools (in the dev dependency group). The results are committed; run it after a change of the
# proto. A grpcio-tools newer than the oldest protobuf that pyproject.toml allows gives code that one refuses.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
wire=$root/src/magnetar/wire
# The include root is the wire folder, so that the generated descriptor is named `pulsar.proto` whatever
# the working directory is.
"${PYTHON:-python3}" -m grpc_tools.protoc \
    --proto_path="$wire" --python_out="$wire" --pyi_out="$wire" "$wire/pulsar.proto"
# Schema.Type has a value named None, which cannot be written as an annotation, and one named KeyValue, which
# hides the message of that name within Schema. Fields that hold the ids of
# producers, consumers and requests get the types that these have everywhere else.
sed -e '/^ *None: /d' \
    -e 's/^    producer_id: int$/    producer_id: _ids.ProducerId/' \
    -e 's/^    consumer_id: int$/    consumer_id: _ids.ConsumerId/' \
    -e 's/^    request_id: int$/    request_id: _ids.RequestId/' \
    -e '/^class Schema(/i _KeyValue = KeyValue\n' \
    -e '/^class Schema(/,/^class [^S]/s/\([[]\)KeyValue\b/\1_KeyValue/g' \
    -e '1i from magnetar.base import ids as _ids' \
    "$wire/pulsar_pb2.pyi" > "$wire/pulsar_pb2.pyi.new"
mv "$wire/pulsar_pb2.pyi.new" "$wire/pulsar_pb2.pyi"
# The same for BookKeeper's protocol.
"${PYTHON:-python3}" -m grpc_tools.protoc \
    --proto_path="$wire/bookkeeper" --python_out="$wire/bookkeeper" --pyi_out="$wire/bookkeeper" \
    "$wire/bookkeeper/bookkeeper.proto"
