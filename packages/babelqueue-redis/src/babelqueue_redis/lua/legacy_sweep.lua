-- Move expired reservations back to the end of the ready list, byte for byte.
--
-- KEYS[1]  ready list
-- KEYS[2]  processing list
-- KEYS[3]  deadlines
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  how many members to look at, at most
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
local wanted = tonumber(ARGV[2])
local members = redis.call(
  'ZRANGEBYSCORE', KEYS[3], '-inf', math.floor(tonumber(now)), 'LIMIT', 0, wanted)
if #members == 0 then
  return {0, 0, 0}
end
redis.call('LLEN', KEYS[1])
redis.call('LLEN', KEYS[2])
redis.call('ZREM', KEYS[3], '')

local moved, seen, scans = 0, 0, 0
for _, member in ipairs(members) do
  if string.match(member, '^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x:') then
    local element = string.sub(member, 34)
    local near = redis.call('LPOS', KEYS[2], element, 'MAXLEN', 1000)
    if not near then
      scans = scans + 1
    end
    if near or redis.call('LPOS', KEYS[2], element) then
      redis.call('RPUSH', KEYS[1], element)
      redis.call('LREM', KEYS[2], 1, element)
      moved = moved + 1
    end
  end
  redis.call('ZREM', KEYS[3], member)
  seen = seen + 1
  if scans == 10 then
    break
  end
end
return {moved, seen, (seen == wanted or seen < #members) and 1 or 0}
