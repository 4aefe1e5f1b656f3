-- Give elements of the processing list that have no deadline one.
--
-- KEYS[1]  processing list
-- KEYS[2]  deadlines, a sorted set of <token>:<element>
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  the lease, whole seconds
-- ARGV[3]  24 hex digits that begin the new tokens
-- ARGV[4]  how many elements to adopt at most
--
-- Reply: how many were adopted.
--
-- Equal elements are counted, not told apart. Where n elements have a deadline, some without one
-- are among the first n + 1.

local now = ARGV[1]
if now == '' then
  now = redis.call('TIME')[1]
end
local deadline = string.format('%.0f', math.floor(tonumber(now)) + tonumber(ARGV[2]))
local wanted = tonumber(ARGV[4])

local members = redis.call('ZRANGE', KEYS[2], 0, -1)
local noted = {}
for _, member in ipairs(members) do
  local element = string.sub(member, 34)
  noted[element] = (noted[element] or 0) + 1
end
redis.call('ZREM', KEYS[2], '')
local adopted = 0
for _, element in ipairs(redis.call('LRANGE', KEYS[1], 0, #members + wanted - 1)) do
  local others = noted[element] or 0
  if others > 0 then
    noted[element] = others - 1
  elseif adopted < wanted then
    adopted = adopted + 1
    redis.call('ZADD', KEYS[2], deadline, ARGV[3] .. string.format('%08x', adopted) .. ':' .. element)
  end
end
return adopted
