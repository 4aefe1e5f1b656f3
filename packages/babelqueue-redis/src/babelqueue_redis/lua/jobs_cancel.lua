-- Cancel a job that is not finished, whether it waits or runs.
--
-- KEYS[1]  due, a sorted set of ids by runAt
-- KEYS[2]  claimed, a sorted set of ids by the end of their lease
-- KEYS[3]  canceled, a sorted set of ids by when
-- KEYS[4]  kinds, a sorted set of <kind>\0<id>
-- KEYS[5]  the job
-- KEYS[6]  what an idempotency key begins with
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  the job's id
--
-- Reply: 1, or 0 when the job is finished or unknown; then nothing was touched.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
local kind, status, key =
  unpack(redis.pcall('HMGET', KEYS[5], 'kind', 'status', 'idempotencyKey'))
if not kind or (status ~= 'pending' and status ~= 'claimed') then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[3], now, ARGV[2])
redis.call('ZADD', KEYS[4], 0, kind .. '\0' .. ARGV[2])
redis.call('HSET', KEYS[5], 'status', 'canceled', 'updatedAt', now)
redis.call('HDEL', KEYS[5], 'lockedAt', 'lockedBy', 'claimToken')
if key and redis.pcall('GET', KEYS[6] .. key) == ARGV[2] then
  redis.call('DEL', KEYS[6] .. key)
end
return 1
