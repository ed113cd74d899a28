// A Google client in Node against the gateway: prints what happened as one line of JSON. Arguments: the topic's id.
const {PubSub} = require('@google-cloud/pubsub');

async function main() {
  const pubsub = new PubSub({projectId: 'client-manager'});
  const id = process.argv[2];
  const [topic] = await pubsub.createTopic(id);
  const [subscription] = await topic.createSubscription(id, {enableMessageOrdering: true});
  const [snapshot] = await subscription.createSnapshot(id);
  const ordered = pubsub.topic(id, {messageOrdering: true});
  const received = [];
  const all = new Promise((resolve, reject) => {
    subscription.on('error', reject);
    subscription.on('message', async message => {
      received.push(message.data.toString());
      message.ack();
      if (received.length === 20) await snapshot.seek();
      if (received.length === 40) resolve();
    });
  });
  const numbers = Array.from({length: 20}, (_, n) => String(n));
  await Promise.all(numbers.map(n => ordered.publishMessage({data: Buffer.from(n), orderingKey: 'a'})));
  await all;
  await subscription.close();
  await pubsub.detachSubscription(subscription.name);
  const [detached] = await subscription.detached();
  const [topics] = await pubsub.getTopics();
  const listed = topics.some(one => one.name === topic.name);
  await Promise.all([snapshot.delete(), subscription.delete(), topic.delete()]);
  console.log(JSON.stringify({received, detached, listed}));
  await pubsub.close();
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
