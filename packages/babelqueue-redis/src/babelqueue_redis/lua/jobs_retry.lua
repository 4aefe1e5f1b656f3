-- Make a finished job due again, with its attempts counted from zero.
--
-- KEYS[1]  due, a sorted set of ids by runAt
-- KEYS[2]  done, a sorted set of ids by when
-- KEYS[3]  dead, a sorted set of ids by when
-- KEYS[4]  canceled, a sorted set of ids by when
-- KEYS[5]  kinds, a sorted set of <kind>\0<id>
-- KEYS[6]  what the key of a job begins with
-- KEYS[7]  what an idempotency key begins with
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  the job's id
--
-- Reply: 1, or 0 when the job is not finished or unknown, or when a newer job holds its idempotency
-- key; then nothing was touched.

local now, id = ARGV[1], ARGV[2]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
redis.call('ZCARD', KEYS[1])
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
local kind, status, key =
  unpack(redis.pcall('HMGET', KEYS[6] .. id, 'kind', 'status', 'idempotencyKey'))
if not kind or (status ~= 'done' and status ~= 'dead' and status ~= 'canceled') then
  return 0
end
local holder = key and redis.pcall('GET', KEYS[7] .. key)
if type(holder) == 'string' and holder ~= id then
  local holds = redis.pcall('HGET', KEYS[6] .. holder, 'status')
  if holds == 'pending' or holds == 'claimed' then
    return 0
  end
end
redis.call('ZREM', KEYS[2], id)
redis.call('ZREM', KEYS[3], id)
redis.call('ZREM', KEYS[4], id)
redis.call('ZADD', KEYS[1], now, id)
redis.call('ZADD', KEYS[5], 0, kind .. '\0' .. id)
redis.call('HSET', KEYS[6] .. id, 'status', 'pending', 'attempts', 0,
  'runAt', now, 'updatedAt', now)
if key then
  redis.call('SET', KEYS[7] .. key, id)
end
return 1
