-- Give claimed jobs back unprocessed: due at once, and no attempt is counted.
--
-- KEYS[1]  claimed, a sorted set of ids by the end of their lease
-- KEYS[2]  due, a sorted set of ids by runAt
-- KEYS[3]  what the key of a job begins with
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2…]  four for each job: id, token, worker's id, when it was claimed
--
-- Reply: how many; a job whose claim is over is not touched.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
redis.call('ZCARD', KEYS[2])
local released = 0
for at = 2, #ARGV, 4 do
  local id, token, worker, since = unpack(ARGV, at, at + 3)
  local job =
    redis.pcall('HMGET', KEYS[3] .. id, 'status', 'claimToken', 'lockedBy', 'lockedAt')
  if job[1] == 'claimed' and job[2] == token and job[3] == worker and job[4] == since then
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZADD', KEYS[2], now, id)
    redis.call('HSET', KEYS[3] .. id, 'status', 'pending', 'runAt', now, 'updatedAt', now)
    redis.call('HDEL', KEYS[3] .. id, 'lockedAt', 'lockedBy', 'claimToken')
    released = released + 1
  end
end
return released
