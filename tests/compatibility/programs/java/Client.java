// The official Java client, of any version: one JSON request per line of standard input, one answer per line of
// standard output.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long LIMIT_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", run(JSON.readTree(line)));
            } catch (Throwable error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                cause.printStackTrace();
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    static JsonNode run(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "produce": return produce(request);
            case "read": return read(request);
            case "group": return group(request);
            case "transact": return transact(request);
            case "fence": return fence(request);
            case "copy": return copy(request);
            case "offset_at": return offsetAt(request);
            default: return administer(request);
        }
    }

    static String text(JsonNode request, String name, String otherwise) {
        return request.hasNonNull(name) ? request.get(name).asText() : otherwise;
    }

    static Properties properties(JsonNode request, String... pairs) {
        Properties found = new Properties();
        found.put("bootstrap.servers", request.get("bootstrap").asText());
        for (int i = 0; i < pairs.length; i += 2) found.put(pairs[i], pairs[i + 1]);
        return found;
    }

    static KafkaProducer<byte[], byte[]> producer(JsonNode request, String... pairs) {
        return new KafkaProducer<>(properties(request, pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode request, String... pairs) {
        Properties found = properties(request, pairs);
        found.put("enable.auto.commit", "false");
        found.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(found, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(JsonNode found) {
        return found == null || found.isNull() ? null : Base64.getDecoder().decode(found.asText());
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, JsonNode records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode each : records) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : each.get("h")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            Long timestamp = each.hasNonNull("t") ? each.get("t").asLong() : null;
            int partition = each.get("p").asInt();
            sent.add(producer.send(
                new ProducerRecord<>(topic, partition, timestamp, bytes(each.get("k")), bytes(each.get("v")), headers)));
        }
        producer.flush();
        for (Future<RecordMetadata> each : sent) each.get();
    }

    static JsonNode produce(JsonNode request) throws Exception {
        String isIdempotent = text(request, "idempotent", "false");
        try (KafkaProducer<byte[], byte[]> producer = producer(
            request, "compression.type", text(request, "codec", "none"), "acks", text(request, "acks", "all"),
            "enable.idempotence", isIdempotent)) {
            send(producer, request.get("topic").asText(), request.get("records"));
        }
        return JSON.createObjectNode();
    }

    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + LIMIT_MS;
        while (found.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(found.size() + " of " + count + " records");
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) found.add(record);
        }
        return found;
    }

    static String encoded(byte[] found) {
        return found == null ? null : Base64.getEncoder().encodeToString(found);
    }

    static JsonNode answer(List<ConsumerRecord<byte[], byte[]>> records) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode list = answer.putArray("records");
        for (ConsumerRecord<byte[], byte[]> record : records) {
            ObjectNode each = list.addObject();
            each.put("k", encoded(record.key()));
            each.put("v", encoded(record.value()));
            each.put("t", record.timestamp());
            each.put("p", record.partition());
            ArrayNode headers = each.putArray("h");
            for (Header header : record.headers()) {
                headers.addArray().add(header.key()).add(encoded(header.value()));
            }
        }
        return answer;
    }

    static String isolation(boolean committed) {
        return committed ? "read_committed" : "read_uncommitted";
    }

    static JsonNode read(JsonNode request) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(
            request, "group.id", UUID.randomUUID().toString(),
            "isolation.level", isolation(request.get("committed").asBoolean()))) {
            List<TopicPartition> assigned = new ArrayList<>();
            for (int i = 0; i < request.get("partitions").asInt(); i++) {
                assigned.add(new TopicPartition(request.get("topic").asText(), i));
            }
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            return answer(poll(consumer, request.get("count").asInt()));
        }
    }

    static JsonNode group(JsonNode request) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(
            request, "group.id", request.get("group").asText(), "group.protocol", text(request, "protocol", "classic"))) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            List<ConsumerRecord<byte[], byte[]>> found = poll(consumer, request.get("count").asInt());
            consumer.commitSync();
            return answer(found);
        }
    }

    static KafkaProducer<byte[], byte[]> transactional(JsonNode request) {
        KafkaProducer<byte[], byte[]> producer = producer(request, "transactional.id", request.get("id").asText());
        producer.initTransactions();
        return producer;
    }

    static void end(KafkaProducer<byte[], byte[]> producer, JsonNode request) {
        if (request.get("commit").asBoolean()) producer.commitTransaction();
        else producer.abortTransaction();
    }

    static JsonNode transact(JsonNode request) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = transactional(request)) {
            producer.beginTransaction();
            send(producer, request.get("topic").asText(), request.get("records"));
            end(producer, request);
        }
        return JSON.createObjectNode();
    }

    static JsonNode fence(JsonNode request) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        String topic = request.get("topic").asText();
        KafkaProducer<byte[], byte[]> older = transactional(request);
        try {
            older.beginTransaction();
            send(older, topic, request.get("records"));
            try (KafkaProducer<byte[], byte[]> newer = transactional(request)) {
                newer.beginTransaction();
                send(newer, topic, request.get("records"));
                newer.commitTransaction();
            }
            older.commitTransaction();
            return answer.put("fenced", false);
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            return answer.put("fenced", true).put("error", String.valueOf(error));
        } finally {
            older.close(Duration.ofSeconds(1));
        }
    }

    static JsonNode copy(JsonNode request) throws Exception {
        String target = request.get("target").asText();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(
                request, "group.id", request.get("group").asText(), "isolation.level", isolation(true),
                "max.poll.records", "1");
            KafkaProducer<byte[], byte[]> producer = transactional(request)) {
            consumer.subscribe(List.of(request.get("source").asText()));
            List<ConsumerRecord<byte[], byte[]>> found = poll(consumer, request.get("count").asInt());
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> record : found) {
                producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
                positions.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            end(producer, request);
        }
        return JSON.createObjectNode();
    }

    static JsonNode offsetAt(JsonNode request) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request, "group.id", UUID.randomUUID().toString())) {
            TopicPartition where = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
            long offset = consumer.offsetsForTimes(Map.of(where, request.get("timestamp").asLong())).get(where).offset();
            return JSON.createObjectNode().put("offset", offset);
        }
    }

    static Map<String, String> config(JsonNode request) {
        Map<String, String> found = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> entries = request.get("config").fields(); entries.hasNext();) {
            Map.Entry<String, JsonNode> entry = entries.next();
            found.put(entry.getKey(), entry.getValue().asText());
        }
        return found;
    }

    static JsonNode administer(JsonNode request) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        String topic = text(request, "topic", "");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(properties(request))) {
            switch (request.get("op").asText()) {
                case "create_topic":
                    NewTopic made = new NewTopic(
                        topic, Optional.of(request.get("partitions").asInt()),
                        Optional.of((short) request.get("replicas").asInt()));
                    admin.createTopics(List.of(made.configs(config(request)))).all().get();
                    return answer;
                case "topic_config":
                    ObjectNode values = answer.putObject("config");
                    for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
                        values.put(entry.name(), entry.value());
                    }
                    return answer;
                case "alter_topic":
                    Collection<AlterConfigOp> changes = new ArrayList<>();
                    config(request).forEach((name, value) ->
                        changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
                    admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
                    return answer;
                case "grow_topic":
                    int partitions = request.get("partitions").asInt();
                    admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(partitions))).all().get();
                    return answer;
                case "delete_topic":
                    admin.deleteTopics(List.of(topic)).all().get();
                    return answer;
                case "topics":
                    ArrayNode names = answer.putArray("topics");
                    admin.listTopics().names().get().forEach(names::add);
                    return answer;
                default:
                    throw new IllegalArgumentException("the client has no such interface");
            }
        }
    }
}
