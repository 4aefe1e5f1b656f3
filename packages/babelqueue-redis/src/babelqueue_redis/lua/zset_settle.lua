-- End a reservation: put another form of its message into a ready list.
--
-- KEYS[1]  reserved, a sorted set
-- KEYS[2]  the ready list, of this queue or of a dead-letter queue, that takes ARGV[2]
-- KEYS[3]  the notify list beside it
-- ARGV[1]  the reserved member
-- ARGV[2]  the message to append
-- ARGV[3]  optional: how many messages KEYS[2] is to keep
--
-- Reply: 0 when the reservation is not there any more; then nothing was touched. Else 1, and the
-- number of the oldest messages that went because of ARGV[3], added up. They are 1 000 at most:
-- where a long list is to become short, each call takes its part.

redis.call('LLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
-- The gate. It is also the first write, which is why the script may go on at maxmemory.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
local length = redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('RPUSH', KEYS[3], 1)
local dropped = ARGV[3] and math.max(0, math.min(length - tonumber(ARGV[3]), 1000)) or 0
if dropped > 0 then
  redis.call('LTRIM', KEYS[2], dropped, -1)
  redis.call('LPOP', KEYS[3], dropped)
end
return 1 + dropped
