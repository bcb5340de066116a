// Kafka's Java clients and tools in one JVM, driven by lines of JSON: requests on standard input, answers and the
// events of group members on standard output. It is started as a source file: java -cp ... JavaClients.java

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

public class JavaClients {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream ANSWERS = System.out;
    static final Duration LIMIT = Duration.ofSeconds(60);
    static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();
    static final Map<String, Stream> STREAMS = new ConcurrentHashMap<>();
    static final Switch OUT = new Switch();
    static final Switch ERR = new Switch();

    /** A tool wanted to end the process. Not an Exception, so that no tool catches it. */
    static class Ended extends Error {
    }

    /** What the tool wanted to end with first: some catch everything, and end again. */
    static volatile Integer status;

    static void end(int wanted) {
        if (status == null) {
            status = wanted;
        }
        throw new Ended();
    }

    /** Standard output of whatever tool runs: libraries keep the stream they saw first. */
    static class Switch extends OutputStream {
        volatile OutputStream target = OutputStream.nullOutputStream();

        @Override
        public void write(int b) throws IOException {
            target.write(b);
        }

        @Override
        public void write(byte[] bytes, int start, int length) throws IOException {
            target.write(bytes, start, length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        org.apache.log4j.Logger root = org.apache.log4j.Logger.getRootLogger();
        root.setLevel(org.apache.log4j.Level.WARN);
        root.addAppender(new org.apache.log4j.WriterAppender(
            new org.apache.log4j.PatternLayout("%d %p %c %m%n"), System.err));
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            Thread thread = new Thread(() -> answer(request));
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    static void answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            switch (request.get("do").asText()) {
                case "tool": runTool(request, answer); break;
                case "clients": clients(answer); break;
                case "produce": produce(request, answer); break;
                case "read": read(request, answer); break;
                case "join": MEMBERS.put(request.get("name").asText(), new Member(request)); break;
                case "leave": MEMBERS.remove(request.get("name").asText()).leave(); break;
                case "stream": STREAMS.put(request.get("name").asText(), new Stream(request)); break;
                case "end": STREAMS.remove(request.get("name").asText()).end(answer); break;
                case "create": create(request); break;
                case "describe": describe(request, answer); break;
                case "grow": grow(request); break;
                case "move": move(request); break;
                case "alter": alter(request); break;
                case "configs": configs(request, answer); break;
                case "delete": delete(request); break;
                case "topics": topics(request, answer); break;
                case "operations": operations(request, answer); break;
                case "transactions": transactions(request); break;
                case "copy": copy(request, answer); break;
                case "commit": commit(request, answer); break;
                case "seek": seek(request, answer); break;
                case "times": times(request, answer); break;
                default: throw new IllegalArgumentException("no " + request.get("do"));
            }
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            answer.put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        }
        answer.set("id", request.get("id"));
        say(answer);
    }

    /** The threads of clients: those that a tool has not closed go on connecting to their brokers. */
    static void clients(ObjectNode answer) {
        ArrayNode threads = answer.putArray("threads");
        Thread.getAllStackTraces().keySet().stream().map(Thread::getName)
            .filter(name -> name.startsWith("kafka-")).forEach(threads::add);
    }

    static synchronized void say(ObjectNode message) {
        ANSWERS.println(message);
        ANSWERS.flush();
    }

    // Tools

    static final Object ONE_TOOL = new Object();

    static void runTool(JsonNode request, ObjectNode answer) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        synchronized (ONE_TOOL) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            OUT.target = out;
            ERR.target = err;
            System.setIn(new ByteArrayInputStream(request.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            status = null;
            try {
                Class.forName(request.get("class").asText()).getMethod("main", String[].class)
                    .invoke(null, (Object) arguments.toArray(new String[0]));
            } catch (InvocationTargetException thrown) {
                if (!(thrown.getCause() instanceof Ended)) {
                    thrown.getCause().printStackTrace();
                    status = 1;
                }
            } finally {
                System.out.flush();
                System.err.flush();
                OUT.target = OutputStream.nullOutputStream();
                ERR.target = OutputStream.nullOutputStream();
            }
            answer.put("status", status == null ? 0 : status);
            answer.put("out", out.toString(StandardCharsets.UTF_8));
            answer.put("err", err.toString(StandardCharsets.UTF_8));
        }
    }

    // Producing and consuming

    static Map<String, Object> config(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", request.get("bootstrap").asText());
        if (request.has("config")) {
            request.get("config").fields().forEachRemaining(
                entry -> config.put(entry.getKey(), entry.getValue().asText()));
        }
        return config;
    }

    static KafkaProducer<byte[], byte[]> producer(JsonNode request) {
        return new KafkaProducer<>(config(request), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        return new KafkaConsumer<>(config(request), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(JsonNode node) throws IOException {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    static ProducerRecord<byte[], byte[]> recordOf(String topic, JsonNode node) throws IOException {
        JsonNode timestamp = node.get("timestamp");
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
            topic,
            node.get("partition").asInt(),
            timestamp.isNull() ? null : timestamp.asLong(),
            bytes(node.get("key")),
            bytes(node.get("value")));
        for (JsonNode header : node.get("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    static void produce(JsonNode request, ObjectNode answer) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(request)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(recordOf(request.get("topic").asText(), record)));
            }
            ArrayNode offsets = answer.putArray("offsets");
            for (Future<RecordMetadata> metadata : sent) {
                offsets.add(metadata.get().offset());
            }
        }
    }

    static ArrayNode recordsOf(Iterable<ConsumerRecord<byte[], byte[]>> records) {
        ArrayNode found = JSON.createArrayNode();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            ObjectNode node = found.addObject();
            node.put("key", record.key()).put("value", record.value());
            node.put("timestamp", record.timestamp()).put("partition", record.partition());
            node.put("offset", record.offset());
            node.put("isCreateTime", record.timestampType() == TimestampType.CREATE_TIME);
            ArrayNode headers = node.putArray("headers");
            for (Header header : record.headers()) {
                headers.addArray().add(header.key()).add(header.value());
            }
        }
        return found;
    }

    static void read(JsonNode request, ObjectNode answer) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < request.get("partitions").asInt(); number++) {
                partitions.add(new TopicPartition(request.get("topic").asText(), number));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            ArrayNode records = answer.putArray("records");
            for (Map.Entry<TopicPartition, Long> end : consumer.endOffsets(partitions).entrySet()) {
                while (consumer.position(end.getKey()) < end.getValue()) {
                    ConsumerRecords<byte[], byte[]> found = consumer.poll(LIMIT);
                    records.addAll(recordsOf(found));
                }
            }
        }
    }

    /** One member of a group: its own thread, its events as lines of JSON. */
    static class Member implements ConsumerRebalanceListener {
        final String name;
        final KafkaConsumer<byte[], byte[]> consumer;
        final Thread thread;
        final Set<Integer> assigned = new HashSet<>();
        volatile boolean isLeaving;

        Member(JsonNode request) {
            name = request.get("name").asText();
            consumer = consumer(request);
            thread = new Thread(() -> run(request.get("topic").asText()));
            thread.setDaemon(true);
            thread.start();
        }

        void leave() throws InterruptedException {
            isLeaving = true;
            thread.join();
        }

        ObjectNode event(String what) {
            return JSON.createObjectNode().put("event", what).put("name", name);
        }

        void sayAssigned() {
            ObjectNode event = event("assigned");
            ArrayNode partitions = event.putArray("partitions");
            assigned.forEach(partitions::add);
            say(event);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> assigned.add(partition.partition()));
            sayAssigned();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> assigned.remove(partition.partition()));
            sayAssigned();
        }

        void run(String topic) {
            try {
                consumer.subscribe(List.of(topic), this);
                while (!isLeaving) {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
                    if (records.isEmpty()) {
                        continue;
                    }
                    ObjectNode event = event("records");
                    event.set("records", recordsOf(records));
                    say(event);
                    try {
                        consumer.commitSync(Duration.ofSeconds(30));
                        say(event("committed"));
                    } catch (CommitFailedException | RetriableException error) {
                        // a rebalance has begun, or the coordinator is gone: it is read again
                    }
                }
            } catch (Throwable error) {
                say(event("failed").put("why", error.toString()));
            } finally {
                consumer.close();
                say(event("left"));
            }
        }
    }

    /** One producer that sends "NAME NUMBER" to the partitions in turn, until it is told to end. */
    static class Stream {
        final String name;
        final String topic;
        final int partitions;
        final KafkaProducer<byte[], byte[]> producer;
        final Thread thread;
        final Map<Integer, RecordMetadata> acknowledged = new ConcurrentHashMap<>();
        final Set<String> failures = ConcurrentHashMap.newKeySet();
        volatile boolean isEnding;

        Stream(JsonNode request) {
            name = request.get("name").asText();
            topic = request.get("topic").asText();
            partitions = request.get("partitions").asInt();
            producer = producer(request);
            thread = new Thread(this::run);
            thread.setDaemon(true);
            thread.start();
        }

        void run() {
            for (int number = 0; !isEnding; number++) {
                int sent = number;
                byte[] value = (name + " " + number).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (metadata, error) -> {
                    if (error == null) {
                        acknowledged.put(sent, metadata);
                    } else {
                        failures.add(error.toString());
                    }
                });
                try {
                    Thread.sleep(10);  // the pace of the load
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
        }

        void end(ObjectNode answer) throws InterruptedException {
            isEnding = true;
            thread.join();
            producer.close();
            ArrayNode records = answer.putArray("acknowledged");
            acknowledged.forEach((number, metadata) ->
                records.addArray().add(number).add(metadata.partition()).add(metadata.offset()));
            ArrayNode errors = answer.putArray("failures");
            failures.forEach(errors::add);
        }
    }

    /** Transactions one after the other: each has values, one record to each partition in turn, and an outcome. */
    static void transactions(JsonNode request) throws IOException {
        String topic = request.get("topic").asText();
        int partitions = request.get("partitions").asInt();
        try (KafkaProducer<byte[], byte[]> producer = producer(request)) {
            producer.initTransactions();
            for (JsonNode transaction : request.get("transactions")) {
                producer.beginTransaction();
                int next = 0;
                for (JsonNode value : transaction.get("values")) {
                    producer.send(new ProducerRecord<>(topic, next++ % partitions, null, bytes(value)));
                }
                if (transaction.get("commit").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
    }

    /** Copies at least `count` records of a group's topic in one transaction, with their offsets. */
    static void copy(JsonNode request, ObjectNode answer) throws Exception {
        String source = request.get("source").asText();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request);
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                 Map.of("bootstrap.servers", request.get("bootstrap").asText(),
                        "transactional.id", request.get("transactionalId").asText()),
                 new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            producer.beginTransaction();
            ArrayNode values = answer.putArray("values");
            while (values.size() < request.get("count").asInt()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    producer.send(new ProducerRecord<>(request.get("target").asText(), record.value()));
                    values.add(new String(record.value(), StandardCharsets.UTF_8));
                }
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition partition : consumer.assignment()) {
                offsets.put(partition, new OffsetAndMetadata(consumer.position(partition)));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (request.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    static void commit(JsonNode request, ObjectNode answer) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        OffsetAndMetadata offset = new OffsetAndMetadata(
            request.get("offset").asLong(), Optional.of(0), request.get("metadata").asText());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            consumer.assign(List.of(partition));
            consumer.commitSync(Map.of(partition, offset));
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            answer.put("offset", found.offset()).put("metadata", found.metadata());
            answer.put("epoch", found.leaderEpoch().orElse(-1));
        }
    }

    static void seek(JsonNode request, ObjectNode answer) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, request.get("offset").asLong());
            answer.set("records", recordsOf(consumer.poll(LIMIT)));
        }
    }

    static void times(JsonNode request, ObjectNode answer) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        ArrayNode offsets = answer.putArray("offsets");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            for (JsonNode timestamp : request.get("timestamps")) {
                OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(partition, timestamp.asLong())).get(partition);
                offsets.add(found == null ? -1 : found.offset());
            }
        }
    }

    // Administration

    static Admin admin(JsonNode request) {
        return Admin.create(config(request));
    }

    static String topic(JsonNode request) {
        return request.get("topic").asText();
    }

    static void create(JsonNode request) throws Exception {
        Map<String, String> settings = new HashMap<>();
        request.get("settings").fields().forEachRemaining(
            entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        NewTopic topic = new NewTopic(
            topic(request), request.get("partitions").asInt(), (short) request.get("replicas").asInt());
        try (Admin admin = admin(request)) {
            admin.createTopics(List.of(topic.configs(settings))).all().get();
        }
    }

    static void describe(JsonNode request, ObjectNode answer) throws Exception {
        try (Admin admin = admin(request)) {
            TopicDescription topic =
                admin.describeTopics(List.of(topic(request))).allTopicNames().get().get(topic(request));
            answer.put("topicId", topic.topicId().toString());
            ArrayNode partitions = answer.putArray("partitions");
            for (TopicPartitionInfo info : topic.partitions()) {
                ObjectNode partition = partitions.addObject();
                partition.put("partition", info.partition());
                partition.put("leader", info.leader() == null ? -1 : info.leader().id());
                ArrayNode replicas = partition.putArray("replicas");
                info.replicas().forEach(node -> replicas.add(node.id()));
                ArrayNode inSync = partition.putArray("inSync");
                info.isr().forEach(node -> inSync.add(node.id()));
            }
        }
    }

    static void grow(JsonNode request) throws Exception {
        try (Admin admin = admin(request)) {
            admin.createPartitions(
                Map.of(topic(request), NewPartitions.increaseTo(request.get("partitions").asInt()))).all().get();
        }
    }

    /** Has a broker move its replica of a partition to another of its log directories. */
    static void move(JsonNode request) throws Exception {
        try (Admin admin = admin(request)) {
            TopicPartitionReplica replica = new TopicPartitionReplica(
                topic(request), request.get("partition").asInt(), request.get("broker").asInt());
            admin.alterReplicaLogDirs(Map.of(replica, request.get("path").asText())).all().get();
        }
    }

    static void alter(JsonNode request) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        request.get("settings").fields().forEachRemaining(entry -> changes.add(new AlterConfigOp(
            new ConfigEntry(entry.getKey(), entry.getValue().asText()), AlterConfigOp.OpType.SET)));
        try (Admin admin = admin(request)) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        }
    }

    static void configs(JsonNode request, ObjectNode answer) throws Exception {
        try (Admin admin = admin(request)) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
            Config found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            ObjectNode settings = answer.putObject("settings");
            found.entries().forEach(entry -> settings.put(entry.name(), entry.value()));
        }
    }

    static void delete(JsonNode request) throws Exception {
        try (Admin admin = admin(request)) {
            admin.deleteTopics(List.of(topic(request))).all().get();
        }
    }

    static void topics(JsonNode request, ObjectNode answer) throws Exception {
        try (Admin admin = admin(request)) {
            ArrayNode topics = answer.putArray("topics");
            admin.listTopics().names().get().forEach(topics::add);
        }
    }

    /** What the client may do with the cluster, a topic and a group, and who the cluster is. */
    static void operations(JsonNode request, ObjectNode answer) throws Exception {
        try (Admin admin = admin(request)) {
            DescribeClusterResult cluster =
                admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            answer.put("clusterId", cluster.clusterId().get()).put("controller", cluster.controller().get().id());
            ArrayNode racks = answer.putArray("racks");
            cluster.nodes().get().forEach(node -> racks.add(node.rack()));
            addAll(answer.putArray("cluster"), cluster.authorizedOperations().get());
            TopicDescription topic = admin.describeTopics(
                List.of(topic(request)), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                .allTopicNames().get().get(topic(request));
            addAll(answer.putArray("topic"), topic.authorizedOperations());
            String group = request.get("group").asText();
            ConsumerGroupDescription described = admin.describeConsumerGroups(
                List.of(group), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true))
                .all().get().get(group);
            addAll(answer.putArray("group"), described.authorizedOperations());
        }
    }

    static void addAll(ArrayNode names, Set<?> values) {
        values.forEach(value -> names.add(value.toString()));
    }
}
