"use strict";
// The zset layout, shared with Laravel: a reserved message stands in queues:<q>:reserved with its
// attempts raised, and one token per ready message in queues:<q>:notify. It has no place for headers.

// KEYS ready, reserved, delayed, notify; ARGV seconds until the reservation ends
const RESERVE = `
local now = tonumber(redis.call('TIME')[1])
for _, due in ipairs({KEYS[3], KEYS[2]}) do
  for _, body in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now)) do
    redis.call('RPUSH', KEYS[1], body)
    redis.call('RPUSH', KEYS[4], 1)
    redis.call('ZREM', due, body)
  end
end
local body = redis.call('LINDEX', KEYS[1], 0)
if not body then return false end
local reserved = body
local read, envelope = pcall(cjson.decode, body)
if read and type(envelope) == 'table' and type(envelope.attempts) == 'number' then
  envelope.attempts = envelope.attempts + 1
  reserved = cjson.encode(envelope)
end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[1]), reserved)
redis.call('LPOP', KEYS[1])
redis.call('LPOP', KEYS[4])
return {body, reserved}`;

// KEYS reserved, delayed; ARGV reserved member, body
const RETRY = `
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('ZADD', KEYS[2], redis.call('TIME')[1], ARGV[2])`;

// KEYS reserved, ready list of the dead-letter queue, its notify list; ARGV reserved member, body
const DEAD_LETTER = `
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[2])
return redis.call('RPUSH', KEYS[3], 1)`;

class ZsetQueue {
  layout = "zset";

  constructor(redis, name, retryAfter = 90) {
    Object.assign(this, { redis, name, retryAfter });
    this.ready = `queues:${name}`;
    this.reserved = `${this.ready}:reserved`;
    this.delayed = `${this.ready}:delayed`;
    this.notify = `${this.ready}:notify`;
  }

  publish(body, _headers) {
    return this.redis.multi().rpush(this.ready, body).rpush(this.notify, 1).exec();
  }

  /** Wait a second at most for a message. A token may be missing afterwards: nobody counts them. */
  wait() {
    return this.redis.blpop(this.notify, 1);
  }

  async reserve() {
    const keys = [this.ready, this.reserved, this.delayed, this.notify];
    const taken = await this.redis.eval(RESERVE, 4, ...keys, this.retryAfter);
    return taken && { body: taken[0], stored: taken[1], headers: {} };
  }

  ack({ stored }) {
    return this.redis.zrem(this.reserved, stored);
  }

  retry({ stored }, body) {
    return this.redis.eval(RETRY, 2, this.reserved, this.delayed, stored, body);
  }

  deadLetter({ stored }, body) {
    const dead = `${this.ready}.dlq`;
    return this.redis.eval(DEAD_LETTER, 3, this.reserved, dead, `${dead}:notify`, stored, body);
  }
}

module.exports = { ZsetQueue };
