// @platformatic/kafka
import { randomUUID } from "node:crypto";
import { Admin, Consumer, FetchIsolationLevels, ConfigResourceTypes, IncrementalAlterConfigOperationTypes, Producer } from "@platformatic/kafka";
import { data, sasl, serve, text, tls } from "./loop.mjs";

const common = (bootstrap) => ({
  clientId: "compatibility",
  bootstrapBrokers: bootstrap.split(","),
  tls,
  sasl,
  retries: 20,
  retryDelay: 250,
  metadataMaxAge: 1000,
});

const messages = (topic, records) =>
  records.map((record) => ({
    topic,
    key: data(record.k) ?? undefined,
    value: data(record.v) ?? undefined,
    headers: new Map(record.h.map(([name, value]) => [Buffer.from(name), data(value)])),
    partition: record.p,
    timestamp: record.t === null ? undefined : BigInt(record.t),
  }));

const decoded = (message) => ({
  k: text(message.key),
  v: text(message.value),
  h: message.headerEntries.map(([name, value]) => [name.toString(), text(value)]),
  t: Number(message.timestamp),
  p: message.partition,
});

async function using(client, run) {
  try {
    return await run(client);
  } finally {
    await client.close(true);
  }
}

const consume = ({ bootstrap, group, topic, count, committed = true, protocol = "classic" }, onEnd) =>
  using(new Consumer({ ...common(bootstrap), groupId: group, groupProtocol: protocol }), async (consumer) => {
    const stream = await consumer.consume({
      topics: [topic],
      autocommit: false,
      mode: "committed",
      fallbackMode: "earliest",
      maxWaitTime: 500,
      isolationLevel: committed ? FetchIsolationLevels.READ_COMMITTED : FetchIsolationLevels.READ_UNCOMMITTED,
    });
    const found = [];
    for await (const message of stream) {
      found.push(message);
      if (found.length === count) break;
    }
    await onEnd(consumer, found);
    return { records: found.map(decoded) };
  });

const last = (found) => [...new Map(found.map((message) => [message.partition, message])).values()];

const transactional = (bootstrap, id) =>
  new Producer({ ...common(bootstrap), transactionalId: id, idempotent: true });

// One for the life of the program: it does not survive to be closed while it opens a connection.
let admin;
const administer = (bootstrap, run) => run((admin ??= new Admin(common(bootstrap))));

await serve({
  produce: ({ bootstrap, topic, records, codec = "none", acks = "all", idempotent = false }) =>
    using(new Producer({ ...common(bootstrap), idempotent }), async (producer) => {
      const options = idempotent ? {} : { acks: acks === "all" ? -1 : Number(acks) };
      await producer.send({ messages: messages(topic, records), compression: codec, ...options });
    }),
  read: (request) => consume({ ...request, group: randomUUID() }, () => {}),
  group: (request) =>
    consume(request, async (_consumer, found) => {
      for (const message of last(found)) await message.commit();
    }),
  transact: ({ bootstrap, id, topic, records, commit }) =>
    using(transactional(bootstrap, id), async (producer) => {
      const transaction = await producer.beginTransaction();
      await transaction.send({ messages: messages(topic, records) });
      await (commit ? transaction.commit() : transaction.abort());
    }),
  fence: ({ bootstrap, id, topic, records }) =>
    using(transactional(bootstrap, id), async (older) => {
      const transaction = await older.beginTransaction();
      await transaction.send({ messages: messages(topic, records) });
      await using(transactional(bootstrap, id), async (newer) => {
        const another = await newer.beginTransaction();
        await another.send({ messages: messages(topic, records) });
        await another.commit();
      });
      try {
        await transaction.commit();
      } catch (error) {
        const told = JSON.stringify(error, Object.getOwnPropertyNames(error));
        return { fenced: /fenced|INVALID_PRODUCER_EPOCH/i.test(told), error: told.slice(0, 400) };
      }
      return { fenced: false };
    }),
  copy: ({ bootstrap, id, group, source, target, count, commit }) =>
    using(transactional(bootstrap, id), (producer) =>
      consume({ bootstrap, group, topic: source, count }, async (consumer, found) => {
        const transaction = await producer.beginTransaction();
        await transaction.send({ messages: messages(target, found.map(decoded)) });
        await transaction.addConsumer(consumer);
        for (const message of last(found)) await transaction.addOffset(message);
        await (commit ? transaction.commit() : transaction.abort());
      }).then(() => ({})),
    ),
  offset_at: ({ bootstrap, topic, partition, timestamp }) =>
    administer(bootstrap, async (admin) => {
      const partitions = [{ partitionIndex: partition, timestamp: BigInt(timestamp) }];
      const found = await admin.listOffsets({ topics: [{ name: topic, partitions }] });
      return { offset: Number(found[0].partitions[0].offset) };
    }),
  create_topic: ({ bootstrap, topic, partitions, replicas, config }) =>
    administer(bootstrap, async (admin) => {
      const configs = Object.entries(config).map(([name, value]) => ({ name, value }));
      await admin.createTopics({ topics: [topic], partitions, replicas, configs });
    }),
  topic_config: ({ bootstrap, topic }) =>
    administer(bootstrap, async (admin) => {
      const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }];
      const found = await admin.describeConfigs({ resources });
      return { config: Object.fromEntries(found[0].configs.map((each) => [each.name, each.value])) };
    }),
  alter_topic: ({ bootstrap, topic, config }) =>
    administer(bootstrap, async (admin) => {
      const configOperation = IncrementalAlterConfigOperationTypes.SET;
      const configs = Object.entries(config).map(([name, value]) => ({ name, value, configOperation }));
      const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs }];
      await admin.incrementalAlterConfigs({ resources });
    }),
  grow_topic: ({ bootstrap, topic, partitions }) =>
    administer(bootstrap, async (admin) => {
      await admin.createPartitions({ topics: [{ name: topic, count: partitions, assignments: null }] });
    }),
  delete_topic: ({ bootstrap, topic }) => administer(bootstrap, (admin) => admin.deleteTopics({ topics: [topic] })),
  topics: ({ bootstrap }) => administer(bootstrap, async (admin) => ({ topics: await admin.listTopics() })),
});
