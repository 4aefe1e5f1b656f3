-- Remove all messages of a queue that wait.
--
-- KEYS[1]  ready list
-- KEYS[2]  optional: delayed, a sorted set
-- KEYS[3]  optional: the notify list beside it
--
-- Reply: how many there were. Redis frees their memory in the background.

local removed = redis.call('LLEN', KEYS[1])
if KEYS[2] then
  removed = removed + redis.call('ZCARD', KEYS[2])
  redis.call('LLEN', KEYS[3])
  redis.call('UNLINK', KEYS[2])
  redis.call('UNLINK', KEYS[3])
end
redis.call('UNLINK', KEYS[1])
return removed
