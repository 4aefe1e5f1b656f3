-- Bring jobs back whose lease has run out: an attempt is counted, and the last one makes them dead.
--
-- KEYS[1]  claimed, a sorted set of ids by the end of their lease
-- KEYS[2]  due, a sorted set of ids by runAt
-- KEYS[3]  dead, a sorted set of ids by when
-- KEYS[4]  kinds, a sorted set of <kind>\0<id>
-- KEYS[5]  what the key of a job begins with
-- KEYS[6]  what an idempotency key begins with
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  how many to look at, at most
--
-- Reply: {reaped, more}; more is 1 when expired claims may be left.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
local reaped = 0
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  local kind, payload, status, attempts, most, key, worker = unpack(redis.pcall('HMGET', KEYS[5] .. id,
    'kind', 'payload', 'status', 'attempts', 'maxAttempts', 'idempotencyKey', 'lockedBy'))
  redis.call('ZREM', KEYS[1], id)
  if kind == false or payload == false then -- not of a key of another type
    redis.call('DEL', KEYS[5] .. id)
  elseif status == 'claimed' then
    attempts = (tonumber(attempts) or 0) + 1
    if attempts < (tonumber(most) or 1) then
      redis.call('ZADD', KEYS[2], now, id)
      redis.call('HSET', KEYS[5] .. id, 'status', 'pending', 'runAt', now)
    else
      redis.call('ZADD', KEYS[3], now, id)
      redis.call('HSET', KEYS[5] .. id, 'status', 'dead')
      if key and redis.pcall('GET', KEYS[6] .. key) == id then
        redis.call('DEL', KEYS[6] .. key)
      end
    end
    redis.call('HSET', KEYS[5] .. id, 'attempts', attempts, 'updatedAt', now,
      'lastError', 'the lease of ' .. (worker or 'a worker') .. ' ran out')
    redis.call('HDEL', KEYS[5] .. id, 'lockedAt', 'lockedBy', 'claimToken')
    redis.call('ZADD', KEYS[4], 0, kind .. '\0' .. id)
    reaped = reaped + 1
  end
end
return {reaped, #ids == tonumber(ARGV[2]) and 1 or 0}
