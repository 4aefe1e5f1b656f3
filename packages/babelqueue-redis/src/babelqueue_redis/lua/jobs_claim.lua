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
-- Reply: {the rank to go on from, or -1 when nothing is left to look at, the fields of a job, …}.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
local most, rank, look = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local may_run = {}
for at = 8, #ARGV do
  may_run[ARGV[at]] = true
end
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[4])

local reply = {-1}
local due = redis.call('ZRANGE', KEYS[1], rank, rank + look - 1, 'WITHSCORES')
for at = 1, #due, 2 do
  local id = due[at]
  if #reply > most or tonumber(due[at + 1]) > tonumber(now) then
    return reply
  end
  local kind, payload, status =
    unpack(redis.pcall('HMGET', KEYS[3] .. id, 'kind', 'payload', 'status'))
  if kind == false or payload == false then
    redis.call('ZREM', KEYS[1], id)
    redis.call('DEL', KEYS[3] .. id)
  elseif status ~= 'pending' and (status ~= 'claimed' or redis.call('ZSCORE', KEYS[2], id)) then
    redis.call('ZREM', KEYS[1], id) -- finished or claimed elsewhere, or a key of another type
  elseif #ARGV > 7 and not may_run[kind] then
    rank = rank + 1
  else
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), id)
    redis.call('ZADD', KEYS[4], 0, kind .. '\0' .. id)
    redis.call('HSET', KEYS[3] .. id, 'id', id, 'status', 'claimed', 'lockedAt', now,
      'lockedBy', ARGV[3], 'claimToken', ARGV[4], 'updatedAt', now)
    reply[#reply + 1] = redis.call('HGETALL', KEYS[3] .. id)
  end
end
reply[1] = #due == 2 * look and rank or -1
return reply
