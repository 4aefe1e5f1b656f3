-- Read a page of the jobs of one kind or of all kinds, whatever their status.
--
-- KEYS[1]  kinds, a sorted set of <kind>\0<id>
-- KEYS[2]  what the key of a job begins with
-- ARGV[1]  the member after which to begin, as ZRANGEBYLEX takes it
-- ARGV[2]  the last member, likewise
-- ARGV[3]  how many to look at
-- ARGV[4]  1 to read the jobs, 0 only to remove members whose job has vanished
--
-- Reply: {member, the fields of a job, …}; the next page begins after that member, which is '' at
-- the end. A member whose job has vanished, or is of another kind by now, is removed. A job's own
-- field id may be missing or wrong: the right one follows the others.

local members = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local reply = {#members == tonumber(ARGV[3]) and members[#members] or ''}
for _, member in ipairs(members) do
  local id = string.match(member, '%z(.*)$') or ''
  local kind = redis.pcall('HGET', KEYS[2] .. id, 'kind')
  if type(kind) ~= 'string' or kind .. '\0' .. id ~= member then
    redis.call('ZREM', KEYS[1], member)
  elseif ARGV[4] == '1' then
    local job = redis.call('HGETALL', KEYS[2] .. id)
    job[#job + 1], job[#job + 2] = 'id', id
    reply[#reply + 1] = job
  end
end
return reply
