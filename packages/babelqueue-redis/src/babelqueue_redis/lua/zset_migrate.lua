-- Move due members of a sorted set to the end of the ready list, byte for byte, a token each.
--
-- KEYS[1]  delayed or reserved, a sorted set by the second its members are due
-- KEYS[2]  ready list
-- KEYS[3]  notify list
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  how many to move at most
--
-- Reply: {moved, more}; more is 1 when due members may be left: a call also ends after the ten
-- with which a quarter of a mebibyte is full.

local now = ARGV[1]
if now == '' then
  now = redis.call('TIME')[1]
end
local second, wanted = math.floor(tonumber(now)), tonumber(ARGV[2])
redis.call('LLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
redis.call('ZREM', KEYS[1], '\0no member, but a write that is allowed at maxmemory')

local moved, more, room = 0, 1, 262144
while more == 1 and moved < wanted and room > 0 do
  local some = math.min(10, wanted - moved)
  local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', second, 'LIMIT', 0, some)
  local tokens = {}
  for i, member in ipairs(members) do
    tokens[i], room = 1, room - #member
  end
  if #members > 0 then
    redis.call('RPUSH', KEYS[2], unpack(members))
    redis.call('RPUSH', KEYS[3], unpack(tokens))
    redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #members - 1)
  end
  moved, more = moved + #members, #members < some and 0 or 1
end
return {moved, more}
