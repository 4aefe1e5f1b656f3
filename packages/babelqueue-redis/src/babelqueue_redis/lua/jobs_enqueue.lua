-- Store jobs, all of them or none; not where an unfinished job holds the idempotency key.
--
-- KEYS[1]  due, a sorted set of ids by runAt
-- KEYS[2]  what the key of a job begins with
-- KEYS[3]  what an idempotency key begins with
-- KEYS[4]  kinds, a sorted set of <kind>\0<id>
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2…]  two for each job: its payload, and as a JSON array its id, kind, runAt ('' is now),
--           maxAttempts, idempotency key ('' is none) and headers ('' is none)
--
-- Reply: two for each job that was not stored: its place, from 0 on, and the id of the job that holds
--        its idempotency key.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
redis.call('ZCARD', KEYS[1]) -- a key of the wrong type must stop us before or at the first write
local held = {}
for at = 2, #ARGV, 2 do
  local id, kind, run_at, most, key, headers = unpack(cjson.decode(ARGV[at + 1]))
  local holder = key ~= '' and redis.pcall('GET', KEYS[3] .. key)
  local status = type(holder) == 'string' and redis.pcall('HGET', KEYS[2] .. holder, 'status')
  if status == 'pending' or status == 'claimed' then
    held[#held + 1], held[#held + 2] = at / 2 - 1, holder
  else
    run_at = run_at == '' and now or run_at
    redis.call('ZADD', KEYS[4], 0, kind .. '\0' .. id)
    redis.call('HSET', KEYS[2] .. id, 'id', id, 'kind', kind, 'payload', ARGV[at], 'attempts', 0,
      'status', 'pending', 'maxAttempts', most, 'runAt', run_at, 'createdAt', now, 'updatedAt', now)
    if key ~= '' then
      redis.call('SET', KEYS[3] .. key, id)
      redis.call('HSET', KEYS[2] .. id, 'idempotencyKey', key)
    end
    if headers ~= '' then
      redis.call('HSET', KEYS[2] .. id, 'headers', headers)
    end
    redis.call('ZADD', KEYS[1], run_at, id)
  end
end
return held
