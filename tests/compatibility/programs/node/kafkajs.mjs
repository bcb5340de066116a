// kafkajs
import { randomUUID } from "node:crypto";
import kafkajs from "kafkajs";
import { Unsupported, data, sasl, serve, text, tls } from "./loop.mjs";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;
const kafka = (bootstrap) =>
  new Kafka({
    brokers: bootstrap.split(","),
    ssl: tls,
    sasl: sasl && { ...sasl, mechanism: sasl.mechanism.toLowerCase() },
    logCreator: () => (entry) => console.error(JSON.stringify(entry.log)),
    logLevel: logLevel.WARN,
    retry: { retries: 20, maxRetryTime: 2000 },
  });

const messages = (records) =>
  records.map((record) => {
    const headers = {};
    for (const [name, value] of record.h) {
      if (name in headers) headers[name] = [headers[name], data(value)].flat();
      else headers[name] = data(value);
    }
    return {
      key: data(record.k),
      value: data(record.v),
      headers,
      partition: record.p,
      timestamp: record.t === null ? undefined : String(record.t),
    };
  });

const decoded = (partition, message) => ({
  k: text(message.key),
  v: text(message.value),
  h: Object.entries(message.headers).flatMap(([name, value]) => [value].flat().map((each) => [name, text(each)])),
  t: Number(message.timestamp),
  p: partition,
});

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

async function using(client, run) {
  await client.connect();
  try {
    return await run(client);
  } finally {
    await client.disconnect();
  }
}

async function consume({ bootstrap, group, topic, count, committed = true }, onEnd) {
  const consumer = kafka(bootstrap).consumer({ groupId: group, readUncommitted: !committed });
  return using(consumer, async () => {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const records = [];
    const positions = {};
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ partition, message }) => {
            if (records.length === count) return;
            records.push(decoded(partition, message));
            positions[partition] = String(BigInt(message.offset) + 1n);
            if (records.length === count) resolve();
          },
        })
        .catch(reject);
    });
    const offsets = Object.entries(positions).map(([partition, offset]) => ({ partition: Number(partition), offset }));
    await onEnd(consumer, offsets, records);
    return { records };
  });
}

const transactional = (bootstrap, id) =>
  kafka(bootstrap).producer({ transactionalId: id, maxInFlightRequests: 1, idempotent: true });

await serve({
  produce: ({ bootstrap, topic, records, codec = "none", acks = "all", idempotent = false }) => {
    if (!(codec in codecs)) throw new Unsupported(`${codec} needs a plug-in`);
    const producer = kafka(bootstrap).producer({ idempotent, maxInFlightRequests: idempotent ? 1 : undefined });
    return using(producer, async () => {
      await producer.send({
        topic,
        messages: messages(records),
        compression: codecs[codec],
        acks: acks === "all" ? -1 : Number(acks),
      });
    });
  },
  read: (request) => consume({ ...request, group: randomUUID() }, () => {}),
  group: (request) => {
    if ((request.protocol ?? "classic") !== "classic") throw new Unsupported("the client has the classic protocol only");
    return consume(request, (consumer, offsets) =>
      consumer.commitOffsets(offsets.map((each) => ({ ...each, topic: request.topic }))),
    );
  },
  transact: ({ bootstrap, id, topic, records, commit }) =>
    using(transactional(bootstrap, id), async (producer) => {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: messages(records) });
      await (commit ? transaction.commit() : transaction.abort());
    }),
  fence: async ({ bootstrap, id, topic, records }) => {
    const older = transactional(bootstrap, id);
    await older.connect();
    try {
      const transaction = await older.transaction();
      await transaction.send({ topic, messages: messages(records) });
      await using(transactional(bootstrap, id), async (newer) => {
        const another = await newer.transaction();
        await another.send({ topic, messages: messages(records) });
        await another.commit();
      });
      try {
        await transaction.commit();
      } catch (error) {
        return { fenced: /epoch|fenced/i.test(`${error.type} ${error.message}`), error: `${error.type}: ${error.message}` };
      }
      return { fenced: false };
    } finally {
      await older.disconnect();
    }
  },
  copy: ({ bootstrap, id, group, source, target, count, commit }) =>
    using(transactional(bootstrap, id), (producer) =>
      consume({ bootstrap, group, topic: source, count }, async (_consumer, offsets, records) => {
        const transaction = await producer.transaction();
        await transaction.send({ topic: target, messages: messages(records) });
        await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions: offsets }] });
        await (commit ? transaction.commit() : transaction.abort());
      }).then(() => ({})),
    ),
  offset_at: ({ bootstrap, topic, partition, timestamp }) =>
    using(kafka(bootstrap).admin(), async (admin) => {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp);
      return { offset: Number(found.find((each) => each.partition === partition).offset) };
    }),
  create_topic: ({ bootstrap, topic, partitions, replicas, config }) =>
    using(kafka(bootstrap).admin(), async (admin) => {
      const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
      const topics = [{ topic, numPartitions: partitions, replicationFactor: replicas, configEntries }];
      if (!(await admin.createTopics({ topics }))) throw new Error("the topic already exists");
    }),
  topic_config: ({ bootstrap, topic }) =>
    using(kafka(bootstrap).admin(), async (admin) => {
      const found = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] });
      return {
        config: Object.fromEntries(found.resources[0].configEntries.map((each) => [each.configName, each.configValue])),
      };
    }),
  alter_topic: ({ bootstrap, topic, config }) =>
    using(kafka(bootstrap).admin(), async (admin) => {
      const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
      await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] });
    }),
  grow_topic: ({ bootstrap, topic, partitions }) =>
    using(kafka(bootstrap).admin(), async (admin) => {
      await admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] });
    }),
  delete_topic: ({ bootstrap, topic }) =>
    using(kafka(bootstrap).admin(), (admin) => admin.deleteTopics({ topics: [topic] })),
  topics: ({ bootstrap }) => using(kafka(bootstrap).admin(), async (admin) => ({ topics: await admin.listTopics() })),
});
