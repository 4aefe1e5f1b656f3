-- Put jobs into the index that their status names, and into no other: those whose keys one step of
-- a scan finds. Said in a script, it asks the node of a cluster that has them.
--
-- KEYS[1]  due, a sorted set of ids by runAt
-- KEYS[2]  claimed, a sorted set of ids by the end of their lease
-- KEYS[3]  done, a sorted set of ids by when
-- KEYS[4]  dead, likewise
-- KEYS[5]  canceled, likewise
-- KEYS[6]  kinds, a sorted set of <kind>\0<id>
-- KEYS[7]  what the key of a job begins with
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  where the scan goes on; 0 is its beginning
-- ARGV[3]  the pattern of the jobs' keys
-- ARGV[4]  how many keys to look at, about
--
-- Reply: {where the scan goes on, or 0 at its end, how many jobs were not where they belong}.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
local places =
  {pending = KEYS[1], claimed = KEYS[2], done = KEYS[3], dead = KEYS[4], canceled = KEYS[5]}
for _, place in pairs(places) do
  redis.call('ZCARD', place)
end
redis.call('ZREM', KEYS[6], '\0no member, but a write that is allowed at maxmemory')
local changed = 0
local scanned = redis.call('SCAN', ARGV[2], 'MATCH', ARGV[3], 'COUNT', ARGV[4])
for _, key in ipairs(scanned[2]) do
  local id = string.sub(key, #KEYS[7] + 1)
  local kind, payload, status, run_at, updated_at =
    unpack(redis.pcall('HMGET', KEYS[7] .. id, 'kind', 'payload', 'status', 'runAt', 'updatedAt'))
  if kind and payload and places[status] then
    local moves = redis.call('ZADD', KEYS[6], 0, kind .. '\0' .. id)
    for name, place in pairs(places) do
      if name ~= status then
        moves = moves + redis.call('ZREM', place, id)
      elseif not redis.call('ZSCORE', place, id) then
        local when = status == 'pending' and run_at or status ~= 'claimed' and updated_at
        local score = tonumber(when or '')
        local sane = score and math.abs(score) < 1e15 -- which NaN is not
        moves = moves + redis.call('ZADD', place, sane and string.format('%.0f', score) or now, id)
      end
    end
    changed = changed + (moves > 0 and 1 or 0)
  end
end
return {scanned[1], changed}
