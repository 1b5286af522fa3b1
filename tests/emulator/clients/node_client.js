// Steps with @google-cloud/pubsub against PUBSUB_EMULATOR_HOST: `node node_client.js STEP`.
// The last line on stdout is {"passed": STEP}; anything wrong is an exception.
'use strict';

const assert = require('node:assert');
const {PubSub, v1} = require('@google-cloud/pubsub');

const projectId = process.env.PROJECT;
const pubsub = new PubSub({projectId});

async function pair(topicId, subscriptionId, options = {}) {
  const [topic] = await pubsub.createTopic(topicId);
  const [subscription] = await topic.createSubscription(subscriptionId, options);
  return {topic, subscription};
}

// Collects messages until `enough(messages)`; `handle` settles each.
function collect(subscription, enough, handle = message => message.ack()) {
  return new Promise((resolve, reject) => {
    const messages = [];
    subscription.on('error', reject);
    subscription.on('message', message => {
      messages.push(message);
      handle(message, messages);
      if (enough(messages)) resolve(messages);
    });
  });
}

const steps = {
  'topics and subscriptions are created, changed, listed and deleted': async () => {
    const {topic, subscription} = await pair('topic', 'worker', {ackDeadlineSeconds: 30});
    await topic.setMetadata({labels: {colour: 'blue'}});
    await subscription.setMetadata({ackDeadlineSeconds: 40, labels: {size: 'large'}});
    const [metadata] = await subscription.getMetadata();
    assert.strictEqual(metadata.ackDeadlineSeconds, 40);
    assert.deepStrictEqual(metadata.labels, {size: 'large'});
    assert.deepStrictEqual((await topic.getMetadata())[0].labels, {colour: 'blue'});
    assert.deepStrictEqual((await pubsub.getTopics())[0].map(t => t.name), [topic.name]);
    assert.deepStrictEqual(
      (await pubsub.getSubscriptions())[0].map(s => s.name), [subscription.name]);
    await assert.rejects(pubsub.createTopic('topic'), {code: 6});
    await subscription.delete();
    await topic.delete();
    assert.deepStrictEqual((await topic.exists())[0], false);
  },

  'what is published is received once and acked': async () => {
    const {topic, subscription} = await pair('topic', 'worker');
    const published = [];
    for (let n = 0; n < 1000; n++) {
      published.push(topic.publishMessage({data: Buffer.from(`${n}`), attributes: {n: `${n}`}}));
    }
    const ids = new Set(await Promise.all(published));
    const messages = await collect(subscription, all => all.length === 1000);
    assert.strictEqual(new Set(messages.map(m => m.id)).size, 1000);
    assert.ok(messages.every(m => ids.has(m.id) && m.data.toString() === m.attributes.n));
    await subscription.close();
  },

  'ordering keys arrive in order': async () => {
    const {subscription} = await pair('topic', 'worker', {enableMessageOrdering: true});
    const topic = pubsub.topic('topic', {messageOrdering: true});
    for (let n = 0; n < 100; n++) {
      for (const orderingKey of ['a', 'b', 'c']) {
        topic.publishMessage({data: Buffer.from(`${n}`), orderingKey});
      }
    }
    const messages = await collect(subscription, all => all.length === 300);
    for (const key of ['a', 'b', 'c']) {
      const order = messages.filter(m => m.orderingKey === key).map(m => Number(m.data));
      assert.deepStrictEqual(order, [...Array(100).keys()]);
    }
    await subscription.close();
  },

  'exactly-once acks are confirmed and stale ones refused': async () => {
    const {topic, subscription} = await pair(
      'topic', 'worker', {enableExactlyOnceDelivery: true});
    await topic.publishMessage({data: Buffer.from('x')});
    const [message] = await collect(subscription, all => all.length === 1, () => {});
    assert.strictEqual(await message.ackWithResponse(), 'SUCCESS');
    assert.ok(message.isExactlyOnceDelivery);
    const subscriber = new v1.SubscriberClient({projectId, ...pubsub.options});
    await assert.rejects(
      subscriber.acknowledge({subscription: subscription.name, ackIds: [message.ackId]}), {code: 3});
    await subscription.close();
  },

  'a nacked message comes again': async () => {
    const {topic, subscription} = await pair('topic', 'worker');
    await topic.publishMessage({data: Buffer.from('x')});
    const messages = await collect(
      subscription,
      all => all.length === 2,
      (message, all) => (all.length === 1 ? message.nack() : message.ack()));
    assert.strictEqual(messages[0].id, messages[1].id);
    assert.notStrictEqual(messages[0].ackId, messages[1].ackId);
    await subscription.close();
  },

  'a message goes to the dead-letter topic after five attempts': async () => {
    const dead = await pair('dead', 'graveyard');
    const {topic, subscription} = await pair('topic', 'worker', {
      deadLetterPolicy: {deadLetterTopic: dead.topic.name, maxDeliveryAttempts: 5},
    });
    await topic.publishMessage({data: Buffer.from('x'), attributes: {a: 'b'}});
    const attempts = [];
    subscription.on('message', message => {
      attempts.push(message.deliveryAttempt);
      message.nack();
    });
    const [message] = await collect(dead.subscription, all => all.length === 1);
    assert.deepStrictEqual(attempts, [1, 2, 3, 4, 5]);
    assert.strictEqual(message.attributes.a, 'b');
    assert.strictEqual(message.attributes.CloudPubSubDeadLetterSourceDeliveryCount, '5');
    await Promise.all([subscription.close(), dead.subscription.close()]);
  },

  'a snapshot brings messages back': async () => {
    const {topic, subscription} = await pair('topic', 'worker');
    const [snapshot] = await subscription.createSnapshot('snapshot');
    const id = await topic.publishMessage({data: Buffer.from('x')});
    const messages = await collect(
      subscription,
      all => all.length === 2,
      (message, all) => {
        message.ack();
        if (all.length === 1) snapshot.seek();
      });
    assert.deepStrictEqual(messages.map(m => m.id), [id, id]);
    await subscription.close();
  },

  'a filter lets through what matches': async () => {
    const {topic, subscription} = await pair(
      'topic', 'worker', {filter: 'attributes.colour = "blue"'});
    for (const colour of ['red', 'blue', 'green', 'blue']) {
      await topic.publishMessage({data: Buffer.from(colour), attributes: {colour}});
    }
    const messages = await collect(subscription, all => all.length === 2);
    assert.deepStrictEqual(messages.map(m => m.data.toString()), ['blue', 'blue']);
    await subscription.close();
  },

  'flow control holds': async () => {
    const {topic} = await pair('topic', 'worker');
    await Promise.all(
      [...Array(30).keys()].map(n => topic.publishMessage({data: Buffer.from(`${n}`)})));
    const subscription = pubsub.subscription('worker', {
      flowControl: {maxMessages: 3, allowExcessMessages: false},
    });
    let held = 0;
    let most = 0;
    await collect(
      subscription,
      all => all.length === 30,
      message => {
        most = Math.max(most, ++held);
        setImmediate(() => {
          held--;
          message.ack();
        });
      });
    assert.ok(most <= 3, `held ${most} at once`);
    await subscription.close();
  },

  'a large message arrives whole': async () => {
    const {topic, subscription} = await pair('topic', 'worker');
    const data = Buffer.alloc(9_000_000, 7);
    await topic.publishMessage({data});
    const [message] = await collect(subscription, all => all.length === 1);
    assert.ok(message.data.equals(data));
    await subscription.close();
  },

  'a missing topic is code 5': async () => {
    await assert.rejects(
      pubsub.topic('missing').publishMessage({data: Buffer.from('x')}), {code: 5});
  },

  'the REST fallback works': async () => {
    const [host, port] = process.env.PUBSUB_EMULATOR_HOST.split(':');
    const auth = {
      getClient: async () => ({getRequestHeaders: async () => new Headers()}),
      getUniverseDomain: async () => 'googleapis.com',
      fetch: async (url, options) => {
        const response = await fetch(url, {...options, body: options.body || options.data});
        return response;
      },
    };
    const settings = {fallback: true, protocol: 'http', apiEndpoint: host, port: Number(port), auth, projectId};
    const publisher = new v1.PublisherClient(settings);
    const name = `projects/${projectId}/topics/rest-topic`;
    const [topic] = await publisher.createTopic({name});
    assert.strictEqual(topic.name, name);
    await assert.rejects(publisher.createTopic({name}), {code: 6});
  },
};

const step = process.argv[2];
steps[step]().then(
  () => {
    console.log(JSON.stringify({passed: step}));
    process.exit(0);
  },
  error => {
    console.error(error);
    process.exit(1);
  });
