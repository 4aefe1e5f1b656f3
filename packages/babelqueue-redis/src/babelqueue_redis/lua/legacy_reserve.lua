-- Take messages from the head of the ready list and note when their reservations end.
--
-- KEYS[1]  ready list
-- KEYS[2]  processing list
-- KEYS[3]  deadlines, a sorted set of <token>:<element>
-- KEYS[4]  recoveries, a hash of counts by the SHA-1 of the element
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  the lease, whole seconds; '' is for ever
-- ARGV[3]  24 hex digits that begin the tokens; the place among those taken, from 0, ends them
-- ARGV[4]  how many to take at most
-- ARGV[5]  how many bytes of them, about; one is taken whatever its size
-- ARGV[6]  an element that came back as often as this is taken alone; '' is never
-- ARGV[7]  1 to take nothing while a reservation has expired, because that is to be swept first
--
-- Reply: {expired, element, recoveries, element, recoveries, ...}, where expired is 1 or 0.

local second = math.floor(tonumber(ARGV[1] ~= '' and ARGV[1] or redis.call('TIME')[1]))
if ARGV[7] == '1' and redis.call('ZCOUNT', KEYS[3], '-inf', second) > 0 then return {1} end
local deadline = ARGV[2] == '' and '+inf' or string.format('%.0f', second + tonumber(ARGV[2]))
local wanted, room, alone = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]) or math.huge
local counts = redis.call('HLEN', KEYS[4])
local reply, elements, notes = {0}, {}, {}
while #elements < wanted and room > 0 do
  local element = redis.call('LINDEX', KEYS[1], #elements)
  local back = element and counts > 0 and redis.call('HGET', KEYS[4], redis.sha1hex(element)) or 0
  local lonely = tonumber(back) >= alone
  if not element or lonely and #elements > 0 then break end
  local token = ARGV[3] .. string.format('%08x', #elements)
  notes[#notes + 1], notes[#notes + 2] = deadline, token .. ':' .. element
  reply[#reply + 1], reply[#reply + 2] = element, tonumber(back)
  elements[#elements + 1] = element
  room = lonely and 0 or room - #element
end
if #elements > 0 then
  -- Nothing may be half done: a processing key of the wrong type must stop us before the first
  -- write, and what is taken is noted before it leaves the ready list.
  redis.call('LLEN', KEYS[2])
  -- A script whose first write is a ZREM may go on at maxmemory.
  redis.call('ZREM', KEYS[3], '')
  redis.call('ZADD', KEYS[3], unpack(notes))
  redis.call('RPUSH', KEYS[2], unpack(elements))
  redis.call('LTRIM', KEYS[1], #elements, -1)
end
return reply
