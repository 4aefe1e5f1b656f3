"use strict";
// BabelQueue for the demo's Node workers: just enough of a consumer and a publisher to share queues
// with other languages. Retries and dead letters are written as every SDK writes them.
//
// Not a library: JSON.parse rounds integers beyond 2^53 where an SDK keeps the bytes, there are no
// options, and sweeps are not bounded.

const Redis = require("ioredis");
const { make, decode } = require("./envelope");
const { LegacyQueue } = require("./legacy");
const { publishing, processing, failed, describe } = require("./telemetry");
const { ZsetQueue } = require("./zset");

const MAX_TRIES = 3;

function queueOf(redis, name, layout) {
  return layout === "zset" ? new ZsetQueue(redis, name) : new LegacyQueue(redis, name);
}

function publish(queue, urn, data) {
  return publishing(queue, async (headers, traceId, span) => {
    const envelope = make(urn, data, queue.name, traceId);
    span.setAttributes(describe(envelope));
    await queue.publish(JSON.stringify(envelope), headers);
    return envelope.meta.id;
  });
}

/** Handle messages until SIGTERM or SIGINT. `handlers` maps a URN to a function of the envelope. */
async function consume(queue, handlers) {
  let stopped = false;
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => (stopped = true));
  while (!stopped) {
    const reservation = await queue.reserve();
    if (reservation) await deliver(queue, reservation, handlers);
    else await queue.wait();
  }
}

function deliver(queue, reservation, handlers) {
  const envelope = decode(reservation.body);
  return processing(queue, envelope, reservation.headers, async (span) => {
    const outcome = await handle(queue, reservation, envelope, handlers, span);
    span.setAttribute("messaging.babelqueue.outcome", outcome);
  });
}

async function handle(queue, reservation, envelope, handlers, span) {
  try {
    await handlerOf(envelope, handlers)(envelope, reservation.headers);
  } catch (error) {
    failed(span, error);
    return giveBack(queue, reservation, envelope, error);
  }
  await queue.ack(reservation);
  return "acked";
}

function handlerOf(envelope, handlers) {
  if (envelope === null) throw refusal("poison", "the value is no envelope");
  const handler = handlers[envelope.job];
  if (!handler) throw refusal("unknown_urn", `nothing handles ${envelope.job}`);
  return handler;
}

function refusal(reason, message) {
  return Object.assign(new Error(message), { reason });
}

/** Retry a failed message, or dead-letter it when it was tried often enough. */
async function giveBack(queue, reservation, envelope, error) {
  const attempts = (envelope?.attempts ?? 0) + 1;
  if (envelope && attempts < MAX_TRIES) {
    await queue.retry(reservation, JSON.stringify({ ...envelope, attempts }));
    return "retried";
  }
  const dead_letter = {
    reason: error.reason ?? "failed",
    error: error.message,
    exception: error.name,
    failed_at: Date.now(),
    original_queue: envelope?.meta?.queue || queue.name,
    attempts,
    lang: "node",
  };
  const record = envelope ? { ...envelope, attempts } : { raw: reservation.body };
  await queue.deadLetter(reservation, JSON.stringify({ ...record, dead_letter }));
  return "dead_lettered";
}

/** Connect, and run a worker with `handlers(publish)` until it is told to end. */
async function worker(name, handlers) {
  const { BABELQUEUE_REDIS_URL, LAYOUT, PREFIX = "" } = process.env;
  const redis = new Redis(BABELQUEUE_REDIS_URL);
  const queue = (other) => queueOf(redis, PREFIX + other, LAYOUT);
  await consume(queue(name), handlers((to, urn, data) => publish(queue(to), urn, data)));
  await redis.quit();
}

module.exports = { worker };
