-- Take the head of the ready list and note when its reservation ends.
--
-- KEYS[1]  ready list
-- KEYS[2]  processing list
-- KEYS[3]  deadlines, a sorted set of <token>:<element>
-- KEYS[4]  recoveries, a hash of counts by the SHA-1 of the element
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  the lease, whole seconds; '' is for ever
-- ARGV[3]  the reservation's token, 32 hex digits
--
-- Reply: {element, recoveries}, or nil when the queue is empty.

local element = redis.call('LINDEX', KEYS[1], 0)
if not element then
  return false
end
-- Nothing may be half done: a processing key of the wrong type must stop us before the first write.
redis.call('LLEN', KEYS[2])
local counts = redis.call('HLEN', KEYS[4])
-- A script whose first write is a ZREM may go on at maxmemory.
redis.call('ZREM', KEYS[3], '')

local deadline = '+inf'
if ARGV[2] ~= '' then
  local now = ARGV[1]
  if now == '' then
    now = redis.call('TIME')[1]
  end
  deadline = string.format('%.0f', math.floor(tonumber(now)) + tonumber(ARGV[2]))
end
redis.call('ZADD', KEYS[3], deadline, ARGV[3] .. ':' .. element)
redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
local recoveries = counts > 0 and redis.call('HGET', KEYS[4], redis.sha1hex(element))
return {element, tonumber(recoveries or 0)}
