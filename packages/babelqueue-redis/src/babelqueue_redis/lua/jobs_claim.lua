-- Claim due jobs, the longest due first, looking at a bounded number of them.
--
-- KEYS[1]  due, a sorted set of ids by runAt
-- KEYS[2]  claimed, a sorted set of ids by the end of their lease
-- KEYS[3]  what the key of a job begins with
-- KEYS[4]  kinds, a sorted set of <kind>\0<id>
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  the lease, ms
-- ARGV[3]  the worker's id
-- ARGV[4]  the token of this claim
-- ARGV[5]  how many to claim at most
-- ARGV[6]  the rank to begin at
-- ARGV[7]  how many to look at
-- ARGV[8…]  the kinds that may be claimed; none is any
--
-- Reply: {the rank to go on from, or -1 when nothing is left to look at, now, and two for each job:
--         its payload, and as a JSON array its kind, id, status before, attempts, maxAttempts, runAt,
--         createdAt, lastError, idempotencyKey and headers; false is a field that is not there}.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
local last, rank = 2 * ARGV[5] + 1, tonumber(ARGV[6])
local may_run = {}
for at = 8, #ARGV do
  may_run[ARGV[at]] = true
end
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[4])

local due, looked = redis.call('ZCOUNT', KEYS[1], '-inf', now), rank + ARGV[7]
local ids = rank < due and redis.call('ZRANGE', KEYS[1], rank, math.min(looked, due) - 1) or {}
local reply = {-1, now}
for _, id in ipairs(ids) do
  if #reply > last then
    return reply
  end
  local job = redis.pcall('HMGET', KEYS[3] .. id, 'kind', 'payload', 'status', 'attempts',
    'maxAttempts', 'runAt', 'createdAt', 'lastError', 'idempotencyKey', 'headers')
  if job[1] == false or job[2] == false then
    redis.call('ZREM', KEYS[1], id)
    redis.call('DEL', KEYS[3] .. id)
  elseif job[3] ~= 'pending' and (job[3] ~= 'claimed' or redis.call('ZSCORE', KEYS[2], id)) then
    redis.call('ZREM', KEYS[1], id) -- finished or claimed elsewhere, or a key of another type
  elseif #ARGV > 7 and not may_run[job[1]] then
    rank = rank + 1
  else
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZADD', KEYS[2], now + ARGV[2], id)
    redis.call('ZADD', KEYS[4], 0, job[1] .. '\0' .. id)
    redis.call('HSET', KEYS[3] .. id, 'id', id, 'status', 'claimed', 'lockedAt', now,
      'lockedBy', ARGV[3], 'claimToken', ARGV[4], 'updatedAt', now)
    reply[#reply + 1], job[2] = job[2], id
    reply[#reply + 1] = cjson.encode(job)
  end
end
reply[1] = looked < due and rank or -1
return reply
