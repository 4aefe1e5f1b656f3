"use strict";
// The envelope, schema version 1, and the header frame around it.

const { randomUUID } = require("node:crypto");

function make(urn, data, queue, traceId = randomUUID()) {
  return {
    job: urn,
    trace_id: traceId,
    data,
    meta: { id: randomUUID(), queue, lang: "node", schema_version: 1, created_at: Date.now() },
    attempts: 0,
  };
}

/** Return the envelope in `body`, or null when it is none: then it is poison. */
function decode(body) {
  let envelope;
  try {
    envelope = JSON.parse(body);
  } catch {
    return null;
  }
  const known = typeof envelope?.job === "string" && envelope.job.trim() !== "";
  return known && (envelope.meta?.schema_version ?? 1) === 1 ? envelope : null;
}

/** Return what is stored: the bare body without headers, else a frame. */
function frame(body, headers) {
  if (Object.keys(headers).length === 0) return body;
  return JSON.stringify({ __bq_frame: 1, headers, body });
}

/** Split what is stored into body and headers. Never throws: what is no frame is a bare body. */
function unframe(stored) {
  try {
    const { __bq_frame, headers, body } = JSON.parse(stored);
    if (__bq_frame && typeof body === "string") return { body, headers: headers ?? {} };
  } catch {
    // No JSON, or no object: a bare value.
  }
  return { body: stored, headers: {} };
}

module.exports = { make, decode, frame, unframe };
