// Prints what Apache BookKeeper 4.17.3 makes of fixed values, one "name hex" a line: vectors.txt.
//
// Run with the class path of org.apache.bookkeeper:bookkeeper-server:4.17.3 in CP (a pom with this one
// dependency and `mvn dependency:build-classpath` write it):
//   javac -cp "$CP" -d classes Record.java
//   java -cp "classes:$CP" org.apache.bookkeeper.proto.Record > vectors.txt
//
// It lies in BookKeeper's own package because version 2 of the protocol is not public there.
package org.apache.bookkeeper.proto;

import com.google.protobuf.ByteString;
import com.google.protobuf.ExtensionRegistry;
import com.google.protobuf.MessageLite;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookkeeperProtocol.AddRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.AddResponse;
import org.apache.bookkeeper.proto.BookkeeperProtocol.AuthMessage;
import org.apache.bookkeeper.proto.BookkeeperProtocol.BKPacketHeader;
import org.apache.bookkeeper.proto.BookkeeperProtocol.ForceLedgerRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.ForceLedgerResponse;
import org.apache.bookkeeper.proto.BookkeeperProtocol.GetBookieInfoRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.GetBookieInfoResponse;
import org.apache.bookkeeper.proto.BookkeeperProtocol.GetListOfEntriesOfLedgerRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.GetListOfEntriesOfLedgerResponse;
import org.apache.bookkeeper.proto.BookkeeperProtocol.OperationType;
import org.apache.bookkeeper.proto.BookkeeperProtocol.ProtocolVersion;
import org.apache.bookkeeper.proto.BookkeeperProtocol.ReadLacRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.ReadLacResponse;
import org.apache.bookkeeper.proto.BookkeeperProtocol.ReadRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.ReadResponse;
import org.apache.bookkeeper.proto.BookkeeperProtocol.Request;
import org.apache.bookkeeper.proto.BookkeeperProtocol.Response;
import org.apache.bookkeeper.proto.BookkeeperProtocol.StartTLSRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.StartTLSResponse;
import org.apache.bookkeeper.proto.BookkeeperProtocol.StatusCode;
import org.apache.bookkeeper.proto.BookkeeperProtocol.WriteLacRequest;
import org.apache.bookkeeper.proto.BookkeeperProtocol.WriteLacResponse;
import org.apache.bookkeeper.proto.DataFormats.LedgerMetadataFormat;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;
import org.apache.bookkeeper.util.ByteBufList;

final class Record {
    private static final ByteBufAllocator HEAP = UnpooledByteBufAllocator.DEFAULT;
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);
    private static final byte[] PAYLOAD = "payload bytes".getBytes(StandardCharsets.UTF_8);
    private static final long LEDGER = 0x1234_5678_9abcL;
    private static final long ENTRY = 7;

    public static void main(String[] args) throws Exception {
        byte[] key = DigestManager.generateMasterKey(PASSWORD);
        print("key.secret", Unpooled.wrappedBuffer(key));
        print("key.empty", Unpooled.wrappedBuffer(DigestManager.generateMasterKey(new byte[0])));
        digests(key);
        versionTwo(key);
        versionThree(key);
        statuses();
        availability();
        metadata();
    }

    private static void digests(byte[] key) throws Exception {
        for (LedgerMetadataFormat.DigestType type : LedgerMetadataFormat.DigestType.values()) {
            DigestManager v3 = DigestManager.instantiate(LEDGER, PASSWORD, type, HEAP, false);
            print("entry." + type, v3.computeDigestAndPackageForSending(
                ENTRY, 5, 1000, Unpooled.wrappedBuffer(PAYLOAD), key, 0));
            print("lac." + type, v3.computeDigestAndPackageForSendingLac(42));
            DigestManager v2 = DigestManager.instantiate(LEDGER, PASSWORD, type, HEAP, true);
            print("v2.add." + type, v2.computeDigestAndPackageForSending(
                ENTRY, 5, 1000, Unpooled.wrappedBuffer(PAYLOAD), key, 0));
            print("v2.add.recovery." + type, v2.computeDigestAndPackageForSending(
                ENTRY, 5, 1000, Unpooled.wrappedBuffer(PAYLOAD), key,
                BookieProtocol.FLAG_RECOVERY_ADD | BookieProtocol.FLAG_HIGH_PRIORITY));
        }
    }

    private static void versionTwo(byte[] key) throws Exception {
        byte v = BookieProtocol.CURRENT_PROTOCOL_VERSION;
        var requests = new BookieProtoEncoding.RequestEnDeCoderPreV3(ExtensionRegistry.getEmptyRegistry());
        short none = BookieProtocol.FLAG_NONE;
        short fence = BookieProtocol.FLAG_DO_FENCING;
        short urgent = BookieProtocol.FLAG_HIGH_PRIORITY;
        print("v2.read", requests.encode(BookieProtocol.ReadRequest.create(v, LEDGER, ENTRY, none, null), HEAP));
        print("v2.read.urgent",
            requests.encode(BookieProtocol.ReadRequest.create(v, LEDGER, ENTRY, urgent, null), HEAP));
        print("v2.read.fence", requests.encode(
            BookieProtocol.ReadRequest.create(v, LEDGER, BookieProtocol.LAST_ADD_CONFIRMED, fence, key), HEAP));
        print("v2.batch", requests.encode(
            BookieProtocol.BatchedReadRequest.create(v, LEDGER, ENTRY, none, null, 99, 10, 4096), HEAP));
        print("v2.batch.fence", requests.encode(
            BookieProtocol.BatchedReadRequest.create(v, LEDGER, ENTRY, fence, key, 99, 10, 4096), HEAP));
        print("v2.auth", requests.encode(new BookieProtocol.AuthRequest(v, auth()), HEAP));
        var responses = new BookieProtoEncoding.ResponseEnDeCoderPreV3(ExtensionRegistry.getEmptyRegistry());
        print("v2.added", responses.encode(
            BookieProtocol.AddResponse.create(v, BookieProtocol.EOK, LEDGER, ENTRY), HEAP));
        print("v2.added.fenced", responses.encode(
            BookieProtocol.AddResponse.create(v, BookieProtocol.EFENCED, LEDGER, ENTRY), HEAP));
        print("v2.done", responses.encode(
            new BookieProtocol.ReadResponse(v, BookieProtocol.EOK, LEDGER, ENTRY, Unpooled.wrappedBuffer(PAYLOAD)),
            HEAP));
        print("v2.done.none", responses.encode(
            new BookieProtocol.ReadResponse(v, BookieProtocol.ENOENTRY, LEDGER, ENTRY), HEAP));
        ByteBufList entries = ByteBufList.get(
            Unpooled.wrappedBuffer(PAYLOAD), Unpooled.wrappedBuffer(new byte[] {'x'}));
        print("v2.done.batch", responses.encode(
            new BookieProtocol.BatchedReadResponse(v, BookieProtocol.EOK, LEDGER, ENTRY, 99, entries), HEAP));
        print("v2.done.batch.none", responses.encode(
            new BookieProtocol.BatchedReadResponse(v, BookieProtocol.ENOENTRY, LEDGER, ENTRY, 99), HEAP));
        print("v2.authdone", responses.encode(new BookieProtocol.AuthResponse(v, auth()), HEAP));
    }

    private static void statuses() throws Exception {
        for (StatusCode code : StatusCode.values()) {
            print("status.v3." + code, Unpooled.copyInt(code.getNumber()));
        }
        for (Field field : BookieProtocol.class.getFields()) {
            if (field.getType() == int.class && field.getName().startsWith("E")) {
                print("status.v2." + field.getName(), Unpooled.copyInt(field.getInt(null)));
            }
        }
    }

    private static AuthMessage auth() {
        return AuthMessage.newBuilder().setAuthPluginName("plugin").setPayload(bytes(PAYLOAD)).build();
    }

    private static void versionThree(byte[] key) {
        print("v3.add", request(OperationType.ADD_ENTRY).setAddRequest(AddRequest.newBuilder()
            .setLedgerId(LEDGER).setEntryId(ENTRY).setMasterKey(bytes(key)).setBody(bytes(PAYLOAD))).build());
        Request.Builder recovery = request(OperationType.ADD_ENTRY).setAddRequest(AddRequest.newBuilder()
            .setLedgerId(LEDGER).setEntryId(ENTRY).setMasterKey(bytes(key)).setBody(bytes(PAYLOAD))
            .setFlag(AddRequest.Flag.RECOVERY_ADD).setWriteFlags(1));
        recovery.setHeader(recovery.getHeader().toBuilder().setPriority(100));
        print("v3.add.recovery", recovery.build());
        print("v3.add.deferred", request(OperationType.ADD_ENTRY).setAddRequest(AddRequest.newBuilder()
            .setLedgerId(LEDGER).setEntryId(ENTRY).setMasterKey(bytes(key)).setBody(bytes(PAYLOAD))
            .setWriteFlags(WriteFlag.getWriteFlagsValue(EnumSet.of(WriteFlag.DEFERRED_SYNC)))).build());
        print("v3.read", request(OperationType.READ_ENTRY).setReadRequest(
            ReadRequest.newBuilder().setLedgerId(LEDGER).setEntryId(ENTRY)).build());
        print("v3.read.fence", request(OperationType.READ_ENTRY).setReadRequest(
            ReadRequest.newBuilder().setLedgerId(LEDGER).setEntryId(-1).setMasterKey(bytes(key))
                .setFlag(ReadRequest.Flag.FENCE_LEDGER)).build());
        print("v3.read.poll", request(OperationType.READ_ENTRY).setReadRequest(
            ReadRequest.newBuilder().setLedgerId(LEDGER).setEntryId(-1).setPreviousLAC(6).setTimeOut(1000)
                .setFlag(ReadRequest.Flag.ENTRY_PIGGYBACK)).build());
        print("v3.read.wait", request(OperationType.READ_ENTRY).setReadRequest(
            ReadRequest.newBuilder().setLedgerId(LEDGER).setEntryId(ENTRY).setPreviousLAC(6).setTimeOut(1000))
            .build());
        print("v3.writelac", request(OperationType.WRITE_LAC).setWriteLacRequest(WriteLacRequest.newBuilder()
            .setLedgerId(LEDGER).setLac(42).setMasterKey(bytes(key)).setBody(bytes(PAYLOAD))).build());
        print("v3.readlac", request(OperationType.READ_LAC).setReadLacRequest(
            ReadLacRequest.newBuilder().setLedgerId(LEDGER)).build());
        print("v3.force", request(OperationType.FORCE_LEDGER).setForceLedgerRequest(
            ForceLedgerRequest.newBuilder().setLedgerId(LEDGER)).build());
        print("v3.list", request(OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER).setGetListOfEntriesOfLedgerRequest(
            GetListOfEntriesOfLedgerRequest.newBuilder().setLedgerId(LEDGER)).build());
        print("v3.info", request(OperationType.GET_BOOKIE_INFO).setGetBookieInfoRequest(
            GetBookieInfoRequest.newBuilder().setRequested(3)).build());
        print("v3.tls", request(OperationType.START_TLS).setStartTLSRequest(
            StartTLSRequest.getDefaultInstance()).build());
        print("v3.auth", request(OperationType.AUTH).setAuthRequest(auth()).build());

        StatusCode ok = StatusCode.EOK;
        print("v3.added", response(OperationType.ADD_ENTRY, ok).setAddResponse(AddResponse.newBuilder()
            .setStatus(ok).setLedgerId(LEDGER).setEntryId(ENTRY)).build());
        print("v3.done", response(OperationType.READ_ENTRY, ok).setReadResponse(ReadResponse.newBuilder()
            .setStatus(ok).setLedgerId(LEDGER).setEntryId(ENTRY).setBody(bytes(PAYLOAD)).setMaxLAC(6)
            .setLacUpdateTimestamp(1700000000000L)).build());
        StatusCode none = StatusCode.ENOENTRY;
        print("v3.done.none", response(OperationType.READ_ENTRY, none).setReadResponse(ReadResponse.newBuilder()
            .setStatus(none).setLedgerId(LEDGER).setEntryId(ENTRY)).build());
        print("v3.lacwritten", response(OperationType.WRITE_LAC, ok).setWriteLacResponse(
            WriteLacResponse.newBuilder().setStatus(ok).setLedgerId(LEDGER)).build());
        print("v3.lacread", response(OperationType.READ_LAC, ok).setReadLacResponse(ReadLacResponse.newBuilder()
            .setStatus(ok).setLedgerId(LEDGER).setLacBody(bytes(PAYLOAD)).setLastEntryBody(bytes(PAYLOAD))).build());
        print("v3.forced", response(OperationType.FORCE_LEDGER, ok).setForceLedgerResponse(
            ForceLedgerResponse.newBuilder().setStatus(ok).setLedgerId(LEDGER)).build());
        print("v3.listed", response(OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER, ok)
            .setGetListOfEntriesOfLedgerResponse(GetListOfEntriesOfLedgerResponse.newBuilder()
                .setStatus(ok).setLedgerId(LEDGER).setAvailabilityOfEntriesOfLedger(bytes(PAYLOAD))).build());
        print("v3.infodone", response(OperationType.GET_BOOKIE_INFO, ok).setGetBookieInfoResponse(
            GetBookieInfoResponse.newBuilder().setStatus(ok).setTotalDiskCapacity(1000).setFreeDiskSpace(10)).build());
        print("v3.tlsstarts", response(OperationType.START_TLS, ok).setStartTLSResponse(
            StartTLSResponse.getDefaultInstance()).build());
        print("v3.authdone", response(OperationType.AUTH, ok).setAuthResponse(auth()).build());
        print("v3.refused", response(OperationType.RANGE_READ_ENTRY, StatusCode.EBADREQ).build());
    }

    private static Request.Builder request(OperationType operation) {
        return Request.newBuilder().setHeader(header(operation));
    }

    private static Response.Builder response(OperationType operation, StatusCode status) {
        return Response.newBuilder().setHeader(header(operation)).setStatus(status);
    }

    private static BKPacketHeader header(OperationType operation) {
        return BKPacketHeader.newBuilder().setVersion(ProtocolVersion.VERSION_THREE).setOperation(operation)
            .setTxnId(300).build();
    }

    private static void availability() {
        entries("entries.none", new long[] {});
        entries("entries.one", new long[] {5});
        entries("entries.run", new long[] {0, 1, 2, 3, 4});
        entries("entries.striped", new long[] {0, 1, 3, 4, 6, 7, 9, 10});
        entries("entries.ragged", new long[] {0, 1, 2, 10, 12, 14, 20, 21, 40});
        // Apache's bookies never put two sequences into one group, but its readers know it: entries 0 to 13 of
        // a group of sequences of 2, a period of 3, the last from 9 on.
        ByteBuf group = Unpooled.buffer().writeInt(0).writeInt(1).writeZero(56);
        group.writeLong(0).writeLong(9).writeInt(2).writeInt(3);
        AvailabilityOfEntriesOfLedger read = new AvailabilityOfEntriesOfLedger(group.copy());
        ByteBuf held = Unpooled.buffer();
        for (long entry = 0; entry < 14; entry++) {
            held.writeByte(read.isEntryAvailable(entry) ? 1 : 0);
        }
        print("entries.grouped", group);
        print("entries.grouped.held", held);
    }

    private static void entries(String name, long[] ids) {
        print(name, Unpooled.wrappedBuffer(new AvailabilityOfEntriesOfLedger(ids).serializeStateOfEntriesOfLedger()));
    }

    private static void metadata() throws Exception {
        LedgerMetadataSerDe serde = new LedgerMetadataSerDe();
        List<BookieId> first = List.of(BookieId.parse("b1:3181"), BookieId.parse("b2:3181"), BookieId.parse("b3:3181"));
        List<BookieId> second = List.of(BookieId.parse("b1:3181"), BookieId.parse("b4:3181"), BookieId.parse("b3:3181"));
        for (int version = 1; version <= 3; version++) {
            LedgerMetadataBuilder open = builder(version).newEnsembleEntry(0, first);
            print("metadata.open.v" + version, Unpooled.wrappedBuffer(serde.serialize(open.build())));
            LedgerMetadata closed = builder(version).newEnsembleEntry(0, first).newEnsembleEntry(10, second)
                .withClosedState().withLastEntryId(20).withLength(2000).build();
            print("metadata.closed.v" + version, Unpooled.wrappedBuffer(serde.serialize(closed)));
        }
        for (DigestType type : DigestType.values()) {
            LedgerMetadata open = builder(3).withDigestType(type).newEnsembleEntry(0, first).build();
            print("metadata.open." + type, Unpooled.wrappedBuffer(serde.serialize(open)));
        }
        LedgerMetadata recovery = builder(3).newEnsembleEntry(0, first).withInRecoveryState()
            .withCustomMetadata(Map.of("application", PAYLOAD)).withCreationTime(1700000000000L)
            .storingCreationTime(true).withCToken(77).build();
        print("metadata.recovery.v3", Unpooled.wrappedBuffer(serde.serialize(recovery)));
        serde.parseConfig(serde.serialize(recovery), LEDGER, Optional.empty());
    }

    private static LedgerMetadataBuilder builder(int version) {
        LedgerMetadataBuilder builder = LedgerMetadataBuilder.create().withId(LEDGER).withMetadataFormatVersion(version)
            .withEnsembleSize(3).withWriteQuorumSize(version == 1 ? 2 : 3).withAckQuorumSize(2);
        return version == 1 ? builder : builder.withDigestType(DigestType.CRC32C).withPassword(PASSWORD);
    }

    private static ByteString bytes(byte[] value) {
        return ByteString.copyFrom(value);
    }

    private static void print(String name, Object value) {
        if (value instanceof MessageLite message) {
            byte[] body = message.toByteArray();
            print(name, Unpooled.wrappedBuffer(Unpooled.copyInt(body.length), Unpooled.wrappedBuffer(body)));
        } else if (value instanceof ByteBufList list) {
            print(name, Unpooled.wrappedBuffer(ByteBufList.coalesce(list)));
        } else {
            System.out.println(name + " " + ByteBufUtil.hexDump((ByteBuf) value));
        }
    }
}
