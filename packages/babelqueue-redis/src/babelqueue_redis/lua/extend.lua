-- Let a reservation last another lease from now on, if it is still there.
--
-- KEYS[1]  the reservations, a sorted set by the second each one ends
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  the lease, whole seconds
-- ARGV[3]  the reservation's member
--
-- Reply: 1, or 0 when the reservation is not there any more; then nothing was touched.

if not redis.call('ZSCORE', KEYS[1], ARGV[3]) then
  return 0
end
redis.call('ZREM', KEYS[1], '\0no member, but a write that is allowed at maxmemory')
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1e6
end
local deadline = string.format('%.0f', math.ceil(now) + tonumber(ARGV[2]))
redis.call('ZADD', KEYS[1], 'XX', deadline, ARGV[3])
return 1
