// The specification's loop on Node: each record by itself, serialised per topic, `send` to every subscriber, and a
// look at `bufferedAmount` before each. Arguments: REDIS_URL STREAM EVENTS. Prints the port.
import { WebSocketServer } from "ws";
import Redis from "ioredis";

const [url, stream, events] = process.argv.slice(2);
const THRESHOLD = 1_048_576;
const topics = new Map();
const group = `live-broadcast-node-${process.pid}`;
const server = new WebSocketServer({ host: "127.0.0.1", port: 0, path: "/ws", perMessageDeflate: false });

server.on("connection", (socket) => {
  const mine = new Set();
  socket.on("message", (data) => {
    const { type, topic } = JSON.parse(data);
    if (type !== "subscribe") return;
    if (!topics.has(topic)) topics.set(topic, new Set());
    topics.get(topic).add(socket);
    mine.add(topic);
    socket.send(JSON.stringify({ type: "subscribed", topic, snapshot: [] }));
  });
  socket.on("close", () => { for (const topic of mine) topics.get(topic)?.delete(socket); });
  socket.on("error", () => {});
});

const redis = new Redis(url);
await redis.xgroup("CREATE", stream, group, "$", "MKSTREAM");
server.on("listening", () => console.log(server.address().port));
if (server.address()) console.log(server.address().port);

for (;;) {
  const answer = await redis.xreadgroup(
    "GROUP", group, "c", "COUNT", 100, "BLOCK", 1000, "NOACK", "STREAMS", stream, ">");
  for (const [, entries] of answer ?? []) {
    for (const [, list] of entries) {
      const fields = {};
      for (let i = 0; i < list.length; i += 2) fields[list[i]] = list[i + 1];
      const payload = JSON.parse(fields.payload);
      const topic = `event:E${Number(fields.device_id.slice(1)) % Number(events)}`;
      const subscribers = topics.get(topic);
      if (!subscribers) continue;
      const frame = JSON.stringify({
        type: "position", topic, deviceId: fields.device_id, lat: payload.latitude, lon: payload.longitude,
        ts: Date.parse(fields.ts), speed: payload.speed, course: payload.course,
      });
      for (const socket of subscribers) {
        if (socket.bufferedAmount > THRESHOLD) socket.close(1008);
        else socket.send(frame);
      }
    }
  }
}
