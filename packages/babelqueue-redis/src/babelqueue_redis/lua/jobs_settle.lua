-- End a claim: the job is done, dead, or due again.
--
-- KEYS[1]  claimed, a sorted set of ids by the end of their lease
-- KEYS[2]  the job
-- KEYS[3]  due, a sorted set of ids by runAt
-- KEYS[4]  the finished jobs, done or dead, a sorted set of ids by when
-- KEYS[5]  optional: the job's idempotency key
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  the job's id
-- ARGV[3]  the claim's token
-- ARGV[4]  the worker's id
-- ARGV[5]  when it was claimed
-- ARGV[6]  optional, and so is what follows: dead, or failed, which is dead when it was the last
--          attempt; without it the job is done
-- ARGV[7]  the error
-- ARGV[8]  when a failed job is due again; '' is after ARGV[9]
-- ARGV[9]  ms from now
--
-- Reply: 1, or 0 when the claim is over; then nothing was touched.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
redis.call('ZCARD', KEYS[4])
local is_due = redis.call('ZSCORE', KEYS[3], ARGV[2]) -- a reaper without tokens may have put it there
local job = redis.pcall('HMGET', KEYS[2], 'status', 'claimToken', 'lockedBy', 'lockedAt', 'kind',
  'attempts', 'maxAttempts')
if job[1] ~= 'claimed' or job[2] ~= ARGV[3] or job[3] ~= ARGV[4] or job[4] ~= ARGV[5]
  or not job[5] then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[2])
if is_due then
  redis.call('ZREM', KEYS[3], ARGV[2])
end
local status = 'done'
if ARGV[6] then
  local attempts = (tonumber(job[6]) or 0) + 1
  redis.call('HSET', KEYS[2], 'attempts', attempts, 'lastError', ARGV[7])
  status = ARGV[6] == 'failed' and attempts < (tonumber(job[7]) or 1) and 'pending' or 'dead'
end
if status == 'pending' then
  local due = ARGV[8] ~= '' and ARGV[8] or string.format('%.0f', now + ARGV[9])
  redis.call('HSET', KEYS[2], 'runAt', due)
  redis.call('ZADD', KEYS[3], due, ARGV[2])
else
  redis.call('ZADD', KEYS[4], now, ARGV[2])
  if KEYS[5] and redis.pcall('GET', KEYS[5]) == ARGV[2] then
    redis.call('DEL', KEYS[5])
  end
end
redis.call('HSET', KEYS[2], 'status', status, 'updatedAt', now)
redis.call('HDEL', KEYS[2], 'lockedAt', 'lockedBy', 'claimToken')
return 1
