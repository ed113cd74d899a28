// pg-boss and graphile-worker as worker programs: node node_peer.mjs PEER TASK, the task and the report as in
// bench/broker/workload.py.
import pg from "pg";

const [peer, taskText] = process.argv.slice(2);
const task = JSON.parse(taskText);
const TENANTS = 64;
const INSERT_ROW = "INSERT INTO handled (n, payload) VALUES ($1, $2)";
const INSERT_MANY = "INSERT INTO handled (n, payload) SELECT * FROM unnest($1::bigint [], $2::text [])";

const body = (n) => ({ n, customerId: (n % TENANTS) + 1, text: "x".repeat(100), at: Date.now() / 1000 });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function shares() {
  return Array.from({ length: task.workers }, (_, worker) => {
    const first = Math.floor((task.messages * worker) / task.workers);
    const last = Math.floor((task.messages * (worker + 1)) / task.workers);
    const batches = [];
    for (let start = first; start < last; start += task.batch) {
      batches.push(Array.from({ length: Math.min(task.batch, last - start) }, (_, i) => start + i));
    }
    return batches;
  });
}

async function timed(work) {
  const wall = process.hrtime.bigint();
  const cpu = process.cpuUsage();
  await work();
  const used = process.cpuUsage(cpu);
  return { wall_s: Number(process.hrtime.bigint() - wall) / 1e9, cpu_s: (used.user + used.system) / 1e6 };
}

async function paced(publish) {
  const start = performance.now();
  const publishing = [];
  for (let n = 0; n < task.messages; n++) {
    const wait = start + (n * 1000) / task.per_second - performance.now();
    if (wait > 0) await sleep(wait);
    publishing.push(publish(body(n)));
  }
  await Promise.all(publishing);
}

const pool = new pg.Pool({ connectionString: task.url, max: task.workers + 2 });

async function pgBoss() {
  const { PgBoss } = await import("pg-boss");
  const boss = new PgBoss({ connectionString: task.url, max: task.workers + 2, supervise: false, schedule: false });
  boss.on("error", (error) => { console.error(error); process.exit(1); });
  await boss.start();
  if (task.kind === "prepare") {
    await boss.createQueue("bench");
    await pool.query("CREATE TABLE handled (n bigint NOT NULL, payload text NOT NULL)");
    return [{}, boss];
  }
  if (task.kind === "publish") {
    const publisher = async (batches) => {
      for (const batch of batches) await boss.insert("bench", batch.map((n) => ({ data: body(n) })));
    };
    return [await timed(() => Promise.all(shares().map(publisher))), boss];
  }
  if (task.kind === "consume") {
    const consumer = async () => {
      const client = await pool.connect();
      const db = { executeSql: (text, values) => client.query(text, values) };
      for (;;) {
        await client.query("BEGIN");
        const jobs = await boss.fetch("bench", { batchSize: task.batch, db });
        if (!jobs.length) { await client.query("ROLLBACK"); break; }
        if (task.bulk) {
          await client.query(INSERT_MANY, [jobs.map((job) => job.data.n), jobs.map((job) => JSON.stringify(job.data))]);
        } else {
          for (const job of jobs) await client.query(INSERT_ROW, [job.data.n, JSON.stringify(job.data)]);
        }
        await boss.complete("bench", jobs.map((job) => job.id), null, { db });
        await client.query("COMMIT");
      }
      client.release();
    };
    return [await timed(() => Promise.all(Array.from({ length: task.workers }, consumer))), boss];
  }
  const latencies = [];
  // Half a second is the shortest that it lets one choose.
  await boss.work("bench", { batchSize: 100, pollingIntervalSeconds: 0.5 }, async (jobs) => {
    for (const job of jobs) latencies.push(Date.now() / 1000 - job.data.at);
  });
  await paced((content) => boss.send("bench", content));
  while (latencies.length < task.messages) await sleep(50);
  return [{ latencies }, boss];
}

async function graphileWorker() {
  const { makeWorkerUtils, run, runOnce, runMigrations, Logger } = await import("graphile-worker");
  const logger = new Logger(() => () => {});
  const options = { pgPool: pool, logger, noHandleSignals: true };
  if (task.kind === "prepare") {
    await runMigrations(options);
    await pool.query("CREATE TABLE handled (n bigint NOT NULL, payload text NOT NULL)");
    return [{}, { stop: async () => {} }];
  }
  if (task.kind === "publish") {
    const utils = await makeWorkerUtils(options);
    const publisher = async (batches) => {
      for (const batch of batches) {
        if (batch.length === 1) await utils.addJob("handle", body(batch[0]));
        else await utils.addJobs(batch.map((n) => ({ identifier: "handle", payload: body(n) })));
      }
    };
    const report = await timed(() => Promise.all(shares().map(publisher)));
    return [report, { stop: () => utils.release() }];
  }
  if (task.kind === "consume") {
    const handle = async (payload, helpers) => { await helpers.query(INSERT_ROW, [payload.n, JSON.stringify(payload)]); };
    const report = await timed(() => runOnce({ ...options, concurrency: task.workers, taskList: { handle } }));
    return [report, { stop: async () => {} }];
  }
  const latencies = [];
  const handle = async (payload) => { latencies.push(Date.now() / 1000 - payload.at); };
  const runner = await run({ ...options, concurrency: 8, taskList: { handle } });
  await paced((content) => runner.addJob("handle", content));
  while (latencies.length < task.messages) await sleep(50);
  return [{ latencies }, runner];
}

const [report, service] = await (peer === "pg-boss" ? pgBoss() : graphileWorker());
await service.stop();
await pool.end();
// Not before all of it is written: a pipe takes 64 KiB at a time, and an exit drops the rest.
process.stdout.write(`${JSON.stringify({ wall_s: 0, cpu_s: 0, latencies: [], ...report })}\n`, () => process.exit(0));
