-- Move expired reservations back to the end of the ready list, byte for byte.
--
-- KEYS[1]  ready list
-- KEYS[2]  processing list
-- KEYS[3]  deadlines
-- KEYS[4]  recoveries, a hash of counts by the SHA-1 of the element
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  how many members to look at, at most
-- ARGV[3]  how many bytes of them, about
-- ARGV[4]  seconds that counts are kept, from the first one on
--
-- Reply: {moved, seen, more}; more is 1 when expired members may be left.
--
-- Our tokens sort by time, so the members of one second come in the order of the processing list
-- and each element stands at its head. Random tokens of other makers do not: an element deep in
-- the list costs a scan, so a call ends after ten of those.

local now = ARGV[1]
if now == '' then
  now = redis.call('TIME')[1]
end
local second, wanted, room = math.floor(tonumber(now)), tonumber(ARGV[2]), tonumber(ARGV[3])
local well_formed = '^' .. string.rep('[0-9a-f]', 32) .. ':'
redis.call('LLEN', KEYS[1])
redis.call('LLEN', KEYS[2])
local counts = redis.call('HLEN', KEYS[4])
redis.call('ZREM', KEYS[3], '')

local moved, seen, scans, more = 0, 0, 0, 1
while more == 1 and seen < wanted and room > 0 and scans < 10 do
  local some = math.min(10, wanted - seen)
  local members = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', second, 'LIMIT', 0, some)
  for _, member in ipairs(members) do
    if string.find(member, well_formed) then
      local element = string.sub(member, 34)
      local near = redis.call('LPOS', KEYS[2], element, 'MAXLEN', 1000)
      scans = near and scans or scans + 1
      if near or redis.call('LPOS', KEYS[2], element) then
        redis.call('RPUSH', KEYS[1], element)
        redis.call('LREM', KEYS[2], 1, element)
        moved = moved + 1
        redis.call('HINCRBY', KEYS[4], redis.sha1hex(element), 1)
      end
    end
    redis.call('ZREM', KEYS[3], member)
    seen, room = seen + 1, room - #member
    if scans == 10 or room <= 0 then
      break
    end
  end
  more = (#members < some and scans < 10 and room > 0) and 0 or 1
end
if counts == 0 and moved > 0 then
  redis.call('EXPIRE', KEYS[4], ARGV[4])
end
return {moved, seen, more}
