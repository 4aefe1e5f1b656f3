-- Give a claim a new lease, from now on.
--
-- KEYS[1]  claimed, a sorted set of ids by the end of their lease
-- KEYS[2]  the job
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  the job's id
-- ARGV[3]  the claim's token
-- ARGV[4]  the worker's id
-- ARGV[5]  when it was claimed
-- ARGV[6]  the lease, ms
--
-- Reply: 1, or 0 when the claim is over; then nothing was touched.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
-- A worker without tokens overwrites lockedBy and lockedAt, but leaves ours.
local status, token, worker, since =
  unpack(redis.pcall('HMGET', KEYS[2], 'status', 'claimToken', 'lockedBy', 'lockedAt'))
if status ~= 'claimed' or token ~= ARGV[3] or worker ~= ARGV[4] or since ~= ARGV[5] then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[6]), ARGV[2])
redis.call('HSET', KEYS[2], 'updatedAt', now)
return 1
