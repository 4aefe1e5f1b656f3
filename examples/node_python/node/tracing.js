"use strict";
// Loaded with `node --require ./tracing.js`: the standard set-up, configured by OTEL_… variables.

const { NodeSDK } = require("@opentelemetry/sdk-node");

const sdk = new NodeSDK();
sdk.start();

// The workers end their loop on SIGTERM or SIGINT, and with it the program; then the last spans go out.
process.once("beforeExit", () => sdk.shutdown());
