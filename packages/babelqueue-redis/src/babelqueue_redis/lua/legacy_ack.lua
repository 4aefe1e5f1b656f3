-- End reservations whose messages are done with: remove the messages.
--
-- KEYS[1]  processing list
-- KEYS[2]  deadlines
-- KEYS[3]  recoveries, a hash of counts by the SHA-1 of the element
-- ARGV     for each: the reservation's token; the reserved element; 1 to forget how often the
--          element was recovered, or 0 where it never was
--
-- Reply: for each 1, or 0 when the reservation is not there any more; then nothing was touched.

-- Nothing may be half done: a key of the wrong type must stop us before the first write.
redis.call('LLEN', KEYS[1])
redis.call('HLEN', KEYS[3])
local reply = {}
-- The last one first: it stands nearest to the tail, where an element is found at once.
for i = #ARGV - 2, 1, -3 do
  -- The gate. It is also the first write, which is why the script may go on at maxmemory.
  local there = redis.call('ZREM', KEYS[2], ARGV[i] .. ':' .. ARGV[i + 1])
  if there == 1 then
    -- From the tail. Which of several equal elements goes makes no difference.
    redis.call('LREM', KEYS[1], -1, ARGV[i + 1])
    if ARGV[i + 2] == '1' then
      redis.call('HDEL', KEYS[3], redis.sha1hex(ARGV[i + 1]))
    end
  end
  reply[(i + 2) / 3] = there
end
return reply
