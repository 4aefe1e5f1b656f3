-- End a claim: the job is done, dead, or due again.
--
-- KEYS[1]  claimed, a sorted set of ids by the end of their lease
-- KEYS[2]  the job
-- KEYS[3]  due, a sorted set of ids by runAt
-- KEYS[4]  the finished jobs, done or dead, a sorted set of ids by when
-- KEYS[5]  kinds, a sorted set of <kind>\0<id>
-- KEYS[6]  optional: the job's idempotency key
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  the job's id
-- ARGV[3]  the claim's token
-- ARGV[4]  the worker's id
-- ARGV[5]  when it was claimed
-- ARGV[6]  done, dead, or failed, which is dead when it was the last attempt
-- ARGV[7]  the error; '' is none
-- ARGV[8]  when a failed job is due again; '' is after ARGV[9]
-- ARGV[9]  ms from now
--
-- Reply: 1, or 0 when the claim is over; then nothing was touched.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
local job = redis.pcall('HMGET', KEYS[2], 'status', 'claimToken', 'lockedBy', 'lockedAt', 'attempts',
  'maxAttempts', 'kind')
if job[1] ~= 'claimed' or job[2] ~= ARGV[3] or job[3] ~= ARGV[4] or job[4] ~= ARGV[5]
  or not job[7] then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2]) -- a reaper without tokens may have put it there
local status, attempts = ARGV[6], tonumber(job[5]) or 0
if status ~= 'done' then
  attempts = attempts + 1
  redis.call('HSET', KEYS[2], 'attempts', attempts, 'lastError', ARGV[7])
end
if status == 'failed' and attempts < (tonumber(job[6]) or 1) then
  local due = ARGV[8] ~= '' and ARGV[8] or string.format('%.0f', now + ARGV[9])
  status = 'pending'
  redis.call('HSET', KEYS[2], 'runAt', due)
  redis.call('ZADD', KEYS[3], due, ARGV[2])
else
  status = status == 'done' and status or 'dead'
  redis.call('ZADD', KEYS[4], now, ARGV[2])
  if KEYS[6] and redis.pcall('GET', KEYS[6]) == ARGV[2] then
    redis.call('DEL', KEYS[6])
  end
end
redis.call('HSET', KEYS[2], 'status', status, 'updatedAt', now)
redis.call('HDEL', KEYS[2], 'lockedAt', 'lockedBy', 'claimToken')
redis.call('ZADD', KEYS[5], 0, job[7] .. '\0' .. ARGV[2])
return 1
