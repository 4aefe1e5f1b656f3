-- Count what stands in the processing list without a deadline, and deadlines without an element.
--
-- KEYS[1]  processing list
-- KEYS[2]  deadlines, a sorted set of <token>:<element>
-- ARGV[1]  how many of each to look at, at most
--
-- Reply: {undated, orphaned, all}; all is 0 when there are more than were looked at, and nothing
-- was counted.

local limit = tonumber(ARGV[1])
if redis.call('LLEN', KEYS[1]) > limit or redis.call('ZCARD', KEYS[2]) > limit then
  return {0, 0, 0}
end
local balance = {}
for _, element in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  balance[element] = (balance[element] or 0) + 1
end
for _, member in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local element = string.sub(member, 34)
  balance[element] = (balance[element] or 0) - 1
end
local undated, orphaned = 0, 0
for _, count in pairs(balance) do
  undated = undated + math.max(count, 0)
  orphaned = orphaned + math.max(-count, 0)
end
return {undated, orphaned, 1}
