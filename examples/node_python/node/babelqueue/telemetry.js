"use strict";
// The spans of a publish and of a delivery, and how the trace goes on from the one to the other.

const { createHash } = require("node:crypto");
const otel = require("@opentelemetry/api");

const tracer = otel.trace.getTracer("babelqueue-demo");

/** Run `send(headers, traceId)` inside a publish span, with its context in the headers. */
function publishing(queue, send) {
  const options = { kind: otel.SpanKind.PRODUCER, attributes: about(queue, "publish", "send") };
  return tracer.startActiveSpan(`publish ${queue.name}`, options, (span) => {
    const headers = {};
    otel.propagation.inject(otel.context.active(), headers);
    const own = span.spanContext();
    const traceId = otel.isSpanContextValid(own) ? uuidOf(own.traceId) : undefined;
    return ending(span, () => send(headers, traceId, span));
  });
}

/** Run `handle(span)` inside a process span: a child of the publish span, and linked to it. */
function processing(queue, envelope, headers, handle) {
  const created = creation(headers, envelope?.trace_id);
  const context = otel.trace.getSpanContext(created);
  const options = {
    kind: otel.SpanKind.CONSUMER,
    links: context ? [{ context }] : [],
    attributes: { ...about(queue, "process", "process"), ...describe(envelope) },
  };
  return tracer.startActiveSpan(`process ${queue.name}`, options, created, (span) =>
    ending(span, () => handle(span)),
  );
}

/** Note a failure that the worker deals with itself. */
function failed(span, error) {
  span.recordException(error);
  span.setAttribute("error.type", error.reason ?? error.name);
  span.setStatus({ code: otel.SpanStatusCode.ERROR, message: error.message });
}

/**
 * Return the context a message was created in. A traceparent names the producer's span. Without
 * one, the envelope's trace_id names the trace, and every SDK derives the same parent span from it.
 */
function creation(headers, traceId) {
  const extracted = otel.propagation.extract(otel.ROOT_CONTEXT, headers);
  if (otel.trace.getSpanContext(extracted) || !traceId?.trim()) return extracted;
  const digits = traceId.replaceAll("-", "").toLowerCase();
  const isUuid = /^[0-9a-f]{32}$/.test(digits) && !/^0+$/.test(digits);
  return otel.trace.setSpanContext(extracted, {
    traceId: isUuid ? digits : sha256(traceId).slice(0, 32),
    spanId: sha256(`babelqueue-span:${traceId}`).slice(0, 16),
    isRemote: true,
    // Nothing on the wire says whether the trace is sampled. This demo says that it is; a library
    // has to ask the sampler.
    traceFlags: otel.TraceFlags.SAMPLED,
  });
}

async function ending(span, work) {
  try {
    return await work();
  } catch (error) {
    failed(span, error);
    throw error;
  } finally {
    span.end();
  }
}

function about(queue, name, type) {
  return {
    "messaging.system": "babelqueue",
    "messaging.operation.name": name,
    "messaging.operation.type": type,
    "messaging.destination.name": queue.name,
    "messaging.babelqueue.layout": queue.layout,
  };
}

function describe(envelope) {
  return {
    "messaging.message.id": envelope?.meta?.id,
    "messaging.message.conversation_id": envelope?.trace_id,
    "messaging.babelqueue.message.urn": envelope?.job,
    "messaging.babelqueue.attempts": envelope?.attempts,
  };
}

function sha256(text) {
  return createHash("sha256").update(text).digest("hex");
}

function uuidOf(digits) {
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

module.exports = { publishing, processing, failed, describe };
