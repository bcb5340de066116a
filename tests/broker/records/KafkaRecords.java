// What Kafka's own classes make of records. One question a line, one answer a line; bytes as hex, "-" for none.
//
//   read <hex>                                 "<magic> <offset> <timestamp> <timestamp type> <key> <value>,..." per record
//   write <magic> <codec> <CREATE_TIME|LOG_APPEND_TIME> <base offset> <timestamp:key:value,...>     the message set
//   down <magic> <first offset> <hex>          MemoryRecords.downConvert
//   validate <codec|producer> <compacted> <CREATE_TIME|LOG_APPEND_TIME> <before ms> <after ms> <now> <hex>
//                                              LogValidator as a leader of 3.9 calls it, offsets from 0, leader epoch 7:
//                                              "ok <hex>", or "<error code> <record index,...>"

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.StringJoiner;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class KafkaRecords {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" ", -1));
            } catch (RecordValidationException error) {
                answer = Errors.forException(error.invalidException()).code() + " " + error.recordErrors().stream()
                    .map(one -> String.valueOf(one.batchIndex)).collect(Collectors.joining(","));
            } catch (Exception error) {
                Errors code = Errors.forException(error);
                answer = code == Errors.UNKNOWN_SERVER_ERROR ? error.toString() : String.valueOf(code.code());
            }
            System.out.println(answer);
        }
    }

    private static String answer(String[] words) {
        switch (words[0]) {
            case "read":
                return read(records(words[1]));
            case "write":
                return write(words);
            case "down":
                return hex((MemoryRecords) records(words[3])
                    .downConvert(Byte.parseByte(words[1]), Long.parseLong(words[2]), Time.SYSTEM).records());
            case "validate":
                return validate(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String read(MemoryRecords records) {
        StringJoiner found = new StringJoiner(",");
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                found.add(String.join(" ", String.valueOf(batch.magic()), String.valueOf(record.offset()),
                    String.valueOf(record.timestamp()), batch.timestampType().toString(),
                    bytes(record.key()), bytes(record.value())));
            }
        }
        return found.toString();
    }

    private static String write(String[] words) {
        TimestampType type = TimestampType.valueOf(words[3]);
        long offset = Long.parseLong(words[4]);
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), Byte.parseByte(words[1]),
            Compression.of(words[2]).build(), type, offset, 1_700_000_000_999L);
        for (String one : words[5].split(",")) {
            String[] fields = one.split(":", -1);
            builder.appendWithOffset(offset++, Long.parseLong(fields[0]), value(fields[1]), value(fields[2]));
        }
        return hex(builder.build());
    }

    private static String validate(String[] words) {
        MemoryRecords records = records(words[7]);
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            if (batch.compressionType() != CompressionType.NONE) {
                source = batch.compressionType();
            }
        }
        Compression target = words[1].equals("producer")
            ? Compression.of(source).build() : Compression.of(words[1].equals("uncompressed") ? "none" : words[1]).build();
        LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), new Fixed(Long.parseLong(words[6])),
            source, target, Boolean.parseBoolean(words[2]), RecordBatch.MAGIC_VALUE_V2, TimestampType.valueOf(words[3]),
            Long.parseLong(words[4]), Long.parseLong(words[5]), 7, AppendOrigin.CLIENT, MetadataVersion.latestProduction());
        return "ok " + hex(validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), new Unrecorded(),
            BufferSupplier.NO_CACHING).validatedRecords);
    }

    private static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(hex)));
    }

    private static byte[] value(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    private static String bytes(ByteBuffer field) {
        if (field == null) {
            return "-";
        }
        byte[] found = new byte[field.remaining()];
        field.get(found);
        return HEX.formatHex(found);
    }

    private static String hex(MemoryRecords records) {
        byte[] found = new byte[records.sizeInBytes()];
        records.buffer().get(found);
        return HEX.formatHex(found);
    }

    private static final class Unrecorded implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }

        public void recordInvalidOffset() { }

        public void recordInvalidSequence() { }

        public void recordInvalidChecksums() { }

        public void recordNoKeyCompactedTopic() { }
    }

    private record Fixed(long now) implements Time {
        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) { }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
    }
}
