-- End reservations whose messages are done with, then take the next ones from the head of the ready
-- list and note when their reservations end.
--
-- KEYS[1]  ready list
-- KEYS[2]  processing list
-- KEYS[3]  deadlines, a sorted set of <token>:<element>
-- KEYS[4]  recoveries, a hash of counts by the SHA-1 of the element
-- ARGV[1]  the terms, words between spaces, and - for none:
--            now, whole epoch seconds; none asks the server's clock
--            24 hex digits that begin the tokens; the place among those taken, from 0, ends them
--            how many to take at most, up to 1000; with 0 the ready list is not looked at
--            the lease, whole seconds; none is for ever
--            how many bytes of them, about; one is taken whatever its size
--            an element that came back as often as this is taken alone; none is never
--            1 to take nothing while a reservation has expired, because that is to be swept first
-- ARGV     from there on, the members of the deadlines that end; their tokens have 32 digits
--
-- Reply: the elements taken. Where that is not all there is to say: {status, ended, recoveries,
-- element, ...}, where status is 0, or 1 when a reservation has expired; ended has a digit for each
-- reservation, 1, or 0 when it is not there any more, and then nothing was touched; recoveries has a
-- number for each element. Status 2 says that nothing could be taken, though ended is true; why stands
-- for recoveries.

local call, ended, taken, notes, back = redis.call, {}, {}, {}, {}
local now, begin, wanted, lease, bytes, alone, looks = string.match(ARGV[1],
  '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
local function count_of(one) return tonumber(call('HGET', KEYS[4], redis.sha1hex(one)) or 0) end
-- Nothing may be half done: a key of the wrong type stops us before the first write, or is told.
local counts, second = call('HLEN', KEYS[4]), now ~= '-' and now or call('TIME')[1]
local status = looks == '1' and call('ZCOUNT', KEYS[3], '-inf', second) > 0 and 1 or 0
local limit, most = status == 0 and tonumber(wanted) or 0, tonumber(alone) or math.huge
local some, room = 1, tonumber(bytes)
call('LLEN', KEYS[2]) if limit > 1 then limit = math.min(limit, call('LLEN', KEYS[1])) end
while limit > 1 and #taken < limit and room > 0 do
  for _, element in ipairs(call('LRANGE', KEYS[1], #taken, #taken + some - 1)) do
    local count = counts > 0 and count_of(element) or 0
    if room <= 0 or count >= most and #taken > 0 then room = 0 break end
    back[#taken + 1], taken[#taken + 1], room = count, element, count >= most and 0 or room - #element
  end
  some = math.max(1, math.min(10, limit - #taken, math.floor(room / #taken[#taken])))
end
-- The last one first: it stands nearest to the tail, where an element is found at once.
for i = #ARGV, 2, -1 do
  -- The gate. It is also the first write, which is why the script may go on at maxmemory.
  ended[i - 1] = call('ZREM', KEYS[3], ARGV[i])
  if ended[i - 1] == 1 then
    -- From the tail. Which of several equal taken goes makes no difference.
    call('LREM', KEYS[2], '-1', string.sub(ARGV[i], 34))
    if counts > 0 then call('HDEL', KEYS[4], redis.sha1hex(string.sub(ARGV[i], 34))) end
  end
end
if #ARGV == 1 then call('ZREM', KEYS[3], '') end  -- a first write that is allowed at maxmemory
if limit == 1 then
  local moved = redis.pcall('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
  if moved and moved.err then status, back[1] = 2, moved.err else taken[1] = moved or nil end
elseif #taken > 0 then
  call('RPUSH', KEYS[2], unpack(taken))
  call('LTRIM', KEYS[1], #taken, -1)
end
local deadline = tonumber(lease) and string.format('%d', second + lease) or '+inf'
for i, element in ipairs(taken) do
  notes[2 * i - 1], notes[2 * i] = deadline, begin .. string.format('%08x:', i - 1) .. element
  back[i] = back[i] or counts > 0 and count_of(element) or 0
end
if #taken > 0 then call('ZADD', KEYS[3], unpack(notes)) end
if status == 0 and counts == 0 and not string.find(table.concat(ended), '0') then return taken end
return {status, table.concat(ended), table.concat(back, ' '), unpack(taken)}
