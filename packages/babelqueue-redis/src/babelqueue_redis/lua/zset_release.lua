-- Give a reserved message back after a delay.
--
-- KEYS[1]  reserved, a sorted set
-- KEYS[2]  delayed, a sorted set
-- ARGV[1]  the reserved member
-- ARGV[2]  the message to give back
-- ARGV[3]  now, epoch seconds; '' asks the server's clock
-- ARGV[4]  the delay, whole seconds
--
-- Reply: 1, or 0 when the reservation is not there any more; then nothing was touched.

local now = ARGV[3]
if now == '' then
  now = redis.call('TIME')[1]
end
redis.call('ZCARD', KEYS[2])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
local due = string.format('%.0f', math.floor(tonumber(now)) + tonumber(ARGV[4]))
redis.call('ZADD', KEYS[2], due, ARGV[2])
return 1
