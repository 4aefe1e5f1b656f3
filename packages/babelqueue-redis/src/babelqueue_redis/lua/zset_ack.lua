-- End reservations whose messages are done with: remove the messages.
--
-- KEYS[1]  reserved, a sorted set
-- ARGV     the reserved members
--
-- Reply: for each 1, or 0 when the reservation is not there any more.

local reply = {}
for i, member in ipairs(ARGV) do
  reply[i] = redis.call('ZREM', KEYS[1], member)
end
return reply
