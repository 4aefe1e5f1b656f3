-- End a reservation: put another form of its message into a list.
--
-- KEYS[1]  processing list
-- KEYS[2]  deadlines
-- KEYS[3]  recoveries, a hash of counts by the SHA-1 of the element
-- KEYS[4]  the list that takes ARGV[4] (the ready list, or a dead-letter queue)
-- ARGV[1]  the reservation's token
-- ARGV[2]  the reserved element
-- ARGV[3]  1 to forget how often the element was recovered; 0 where it never was, or stays
-- ARGV[4]  the element to append to KEYS[4]
-- ARGV[5]  optional: how many elements KEYS[4] is to keep
--
-- Reply: 0 when the reservation is not there any more; then nothing was touched. Else 1, and the
-- number of the oldest elements that went because of ARGV[5], added up. They are 1 000 at most:
-- where a long list is to become short, each call takes its part.

-- Nothing may be half done: a key of the wrong type must stop us before the first write.
redis.call('LLEN', KEYS[1])
redis.call('HLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
-- The gate. It is also the first write, which is why the script may go on at maxmemory.
if redis.call('ZREM', KEYS[2], ARGV[1] .. ':' .. ARGV[2]) == 0 then
  return 0
end
local length = redis.call('RPUSH', KEYS[4], ARGV[4])
local dropped = ARGV[5] and math.max(0, math.min(length - tonumber(ARGV[5]), 1000)) or 0
-- From the tail, where the newest are. Which of several equal elements goes makes no difference.
redis.call('LREM', KEYS[1], -1, ARGV[2])
if ARGV[3] == '1' then
  redis.call('HDEL', KEYS[3], redis.sha1hex(ARGV[2]))
end
if dropped > 0 then
  redis.call('LTRIM', KEYS[4], dropped, -1)
end
return 1 + dropped
