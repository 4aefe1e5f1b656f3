-- End reservations whose messages are done with, then take the next ones from the head of the ready
-- list and note when their reservations end.
--
-- KEYS[1]  ready list
-- KEYS[2]  processing list
-- KEYS[3]  deadlines, a sorted set of <token>:<element>
-- KEYS[4]  recoveries, a hash of counts by the SHA-1 of the element
-- ARGV[1]  the terms, words between spaces, and - for none:
--            now, epoch seconds; none asks the server's clock
--            24 hex digits that begin the tokens; the place among those taken, from 0, ends them
--            how many to take at most; with 0 the ready list is not looked at
--            the lease, whole seconds; none is for ever
--            how many bytes of them, about; one is taken whatever its size
--            an element that came back as often as this is taken alone; none is never
--            1 to take nothing while a reservation has expired, because that is to be swept first
-- ARGV     from there on, the members of the deadlines whose reservations end
--
-- Reply: the elements taken. Where that is not all there is to say: {expired, ended, recoveries,
-- element, ...}, where expired is 1 or 0, ended has a digit for each reservation, 1, or 0 when it is
-- not there any more, and then nothing was touched; recoveries is '' or a number for each element.

local call = redis.call
local now, begin, wanted, lease, room, alone, looks = string.match(ARGV[1],
  '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
-- Nothing may be half done: a key of the wrong type must stop us before the first write.
local limit = wanted ~= '0' and math.min(wanted, call('LLEN', KEYS[1])) or 0
call('LLEN', KEYS[2])
local counts, ended = call('HLEN', KEYS[4]), {}
-- The last one first: it stands nearest to the tail, where an element is found at once.
for i = #ARGV, 2, -1 do
  -- The gate. It is also the first write, which is why the script may go on at maxmemory.
  ended[i - 1] = call('ZREM', KEYS[3], ARGV[i])
  if ended[i - 1] == 1 then
    local element = string.sub(ARGV[i], 34)
    -- From the tail. Which of several equal elements goes makes no difference.
    call('LREM', KEYS[2], -1, element)
    if counts > 0 then call('HDEL', KEYS[4], redis.sha1hex(element)) end
  end
end
local second = math.floor(tonumber(now) or call('TIME')[1])
local expired = looks == '1' and call('ZCOUNT', KEYS[3], '-inf', second) > 0
local deadline = tonumber(lease) and string.format('%.0f', second + lease) or '+inf'
local elements, notes, back, some = {}, {}, {}, 1
alone, room = tonumber(alone) or math.huge, expired and 0 or tonumber(room)
while #elements < limit and room > 0 do
  for _, element in ipairs(call('LRANGE', KEYS[1], #elements, #elements + some - 1)) do
    local count = counts > 0 and tonumber(call('HGET', KEYS[4], redis.sha1hex(element)) or 0) or 0
    if room <= 0 or count >= alone and #elements > 0 then room = 0 break end
    local member = begin .. string.format('%08x:', #elements) .. element
    notes[#notes + 1], notes[#notes + 2] = deadline, member
    elements[#elements + 1], back[#back + 1] = element, count
    room = count >= alone and 0 or room - #element
  end
  some = math.max(1, math.min(10, limit - #elements, math.floor(room / #elements[#elements])))
end
if #elements > 0 then
  call('ZREM', KEYS[3], '')  -- a first write that is allowed at maxmemory
  call('ZADD', KEYS[3], unpack(notes))
  call('RPUSH', KEYS[2], unpack(elements))
  call('LTRIM', KEYS[1], #elements, -1)
end
local said = {expired and 1 or 0, table.concat(ended), table.concat(back, ' '), unpack(elements)}
return (expired or counts > 0 or string.find(said[2], '0')) and said or elements
