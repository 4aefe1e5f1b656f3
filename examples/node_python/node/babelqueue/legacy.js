"use strict";
// The legacy layout: lists. A reserved message stands in <q>:processing, and its deadline in
// <q>:processing:deadlines, a sorted set of "<token>:<stored bytes>".

const { randomBytes } = require("node:crypto");
const { frame, unframe } = require("./envelope");

// KEYS ready, processing, deadlines; ARGV seconds until the reservation ends, token
const RESERVE = `
local now = tonumber(redis.call('TIME')[1])
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do
  local stored = string.sub(member, 34)
  if redis.call('LPOS', KEYS[2], stored) then
    redis.call('RPUSH', KEYS[1], stored)
    redis.call('LREM', KEYS[2], 1, stored)
  end
  redis.call('ZREM', KEYS[3], member)
end
local head = redis.call('LINDEX', KEYS[1], 0)
if not head then return false end
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[1]), ARGV[2] .. ':' .. head)
return redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')`;

// KEYS processing, deadlines and, where the message goes on, its list; ARGV token, stored, new form
const SETTLE = `
if redis.call('ZREM', KEYS[2], ARGV[1] .. ':' .. ARGV[2]) == 0 then return 0 end
if KEYS[3] then redis.call('RPUSH', KEYS[3], ARGV[3]) end
redis.call('LREM', KEYS[1], -1, ARGV[2])
return 1`;

class LegacyQueue {
  layout = "legacy";

  constructor(redis, name, retryAfter = 90) {
    Object.assign(this, { redis, name, retryAfter });
    this.processing = `${name}:processing`;
    this.deadlines = `${name}:processing:deadlines`;
  }

  publish(body, headers) {
    return this.redis.rpush(this.name, frame(body, headers));
  }

  /** Wait a second at most for a message. The head moves onto itself, so nothing is taken. */
  wait() {
    return this.redis.blmove(this.name, this.name, "LEFT", "LEFT", 1);
  }

  async reserve() {
    const token = randomBytes(16).toString("hex");
    const keys = [this.name, this.processing, this.deadlines];
    const stored = await this.redis.eval(RESERVE, 3, ...keys, this.retryAfter, token);
    return stored && { ...unframe(stored), stored, token };
  }

  ack({ token, stored }) {
    return this.redis.eval(SETTLE, 2, this.processing, this.deadlines, token, stored);
  }

  retry(reservation, body) {
    return this.#replace(reservation, this.name, body);
  }

  deadLetter(reservation, body) {
    return this.#replace(reservation, `${this.name}.dlq`, body);
  }

  #replace({ token, stored, headers }, list, body) {
    const keys = [this.processing, this.deadlines, list];
    return this.redis.eval(SETTLE, 3, ...keys, token, stored, frame(body, headers));
  }
}

module.exports = { LegacyQueue };
