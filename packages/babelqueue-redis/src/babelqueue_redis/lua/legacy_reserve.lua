-- End reservations whose messages are done with, then take the next ones from the head of the ready
-- list and note when their reservations end.
--
-- KEYS[1]  ready list
-- KEYS[2]  processing list
-- KEYS[3]  deadlines, a sorted set of <token>:<element>
-- KEYS[4]  recoveries, a hash of counts by the SHA-1 of the element
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  the lease, whole seconds; '' is for ever
-- ARGV[3]  24 hex digits that begin the tokens; the place among those taken, from 0, ends them
-- ARGV[4]  how many to take at most; with 0 the ready list is not looked at
-- ARGV[5]  how many bytes of them, about; one is taken whatever its size
-- ARGV[6]  an element that came back as often as this is taken alone; '' is never
-- ARGV[7]  1 to take nothing while a reservation has expired, because that is to be swept first
-- ARGV     from there on, for each reservation that ends: its token; its element; 1 to forget how
--          often the element was recovered, or 0 where it never was
--
-- Reply: {expired, ended, element, recoveries, element, recoveries, ...}, where expired is 1 or 0, and
-- ended has for each reservation 1, or 0 when it is not there any more; then nothing was touched.

-- Nothing may be half done: a key of the wrong type must stop us before the first write.
local wanted = tonumber(ARGV[4])
local length = wanted > 0 and redis.call('LLEN', KEYS[1]) or 0
redis.call('LLEN', KEYS[2])
local counts = redis.call('HLEN', KEYS[4])
local ended = {}
-- The last one first: it stands nearest to the tail, where an element is found at once.
for i = #ARGV - 2, 8, -3 do
  -- The gate. It is also the first write, which is why the script may go on at maxmemory.
  local there = redis.call('ZREM', KEYS[3], ARGV[i] .. ':' .. ARGV[i + 1])
  if there == 1 then
    -- From the tail. Which of several equal elements goes makes no difference.
    redis.call('LREM', KEYS[2], -1, ARGV[i + 1])
    if ARGV[i + 2] == '1' then redis.call('HDEL', KEYS[4], redis.sha1hex(ARGV[i + 1])) end
  end
  ended[(i - 5) / 3] = there
end
local second = math.floor(tonumber(ARGV[1] ~= '' and ARGV[1] or redis.call('TIME')[1]))
if ARGV[7] == '1' and redis.call('ZCOUNT', KEYS[3], '-inf', second) > 0 then return {1, ended} end
local deadline = ARGV[2] == '' and '+inf' or string.format('%.0f', second + tonumber(ARGV[2]))
local room, alone = tonumber(ARGV[5]), tonumber(ARGV[6]) or math.huge
local reply, elements, notes = {0, ended}, {}, {}
while #elements < math.min(wanted, length) and room > 0 do
  local element = redis.call('LINDEX', KEYS[1], #elements)
  local back = counts > 0 and redis.call('HGET', KEYS[4], redis.sha1hex(element)) or 0
  local lonely = tonumber(back) >= alone
  if lonely and #elements > 0 then break end
  local token = ARGV[3] .. string.format('%08x', #elements)
  notes[#notes + 1], notes[#notes + 2] = deadline, token .. ':' .. element
  reply[#reply + 1], reply[#reply + 2] = element, tonumber(back)
  elements[#elements + 1] = element
  room = lonely and 0 or room - #element
end
if #elements > 0 then
  redis.call('ZREM', KEYS[3], '')  -- a first write that is allowed at maxmemory
  redis.call('ZADD', KEYS[3], unpack(notes))
  redis.call('RPUSH', KEYS[2], unpack(elements))
  redis.call('LTRIM', KEYS[1], #elements, -1)
end
return reply
