-- Move due members of a sorted set to the end of the ready list, byte for byte, a token each.
--
-- KEYS[1]  delayed or reserved, a sorted set by the second its members are due
-- KEYS[2]  ready list
-- KEYS[3]  notify list
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  how many to move at most
--
-- Reply: {moved, more}; more is 1 when due members may be left.

local now = ARGV[1]
if now == '' then
  now = redis.call('TIME')[1]
end
local wanted = tonumber(ARGV[2])
local members = redis.call(
  'ZRANGEBYSCORE', KEYS[1], '-inf', math.floor(tonumber(now)), 'LIMIT', 0, wanted)
if #members == 0 then
  return {0, 0}
end
redis.call('LLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
redis.call('ZREM', KEYS[1], '\0no member, but a write that is allowed at maxmemory')
for _, member in ipairs(members) do
  redis.call('RPUSH', KEYS[2], member)
  redis.call('RPUSH', KEYS[3], 1)
end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #members - 1)
return {#members, #members == wanted and 1 or 0}
