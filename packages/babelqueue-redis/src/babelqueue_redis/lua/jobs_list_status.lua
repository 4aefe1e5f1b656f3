-- Read a page of the jobs of one status, in the order of their scores.
--
-- KEYS[1]  their ids, a sorted set
-- KEYS[2]  what the key of a job begins with
-- ARGV[1]  the status
-- ARGV[2]  the kind; '' is any
-- ARGV[3]  how many to look at
-- ARGV[4]  the score after which to begin; '' is the beginning
-- ARGV[5]  the id after which to begin, among those of that score
--
-- Reply: {score, id, the fields of a job, …}; the next page begins after that score and id. The
-- score is '' at the end. An id whose job has vanished is removed. A job's own field id may be
-- missing or wrong: the right one follows the others.

local rank = 0
if ARGV[4] ~= '' then
  -- Where the id has moved on, its score still says where to begin: then some come twice, none
  -- is left out.
  local score = redis.call('ZSCORE', KEYS[1], ARGV[5])
  if score and tonumber(score) == tonumber(ARGV[4]) then
    rank = redis.call('ZRANK', KEYS[1], ARGV[5]) + 1
  else
    rank = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[4])
  end
end
local reply = {'', ''}
local ids = redis.call('ZRANGE', KEYS[1], rank, rank + ARGV[3] - 1, 'WITHSCORES')
for at = 1, #ids, 2 do
  local id = ids[at]
  local kind, status = unpack(redis.pcall('HMGET', KEYS[2] .. id, 'kind', 'status'))
  if not kind then
    redis.call('ZREM', KEYS[1], id)
  elseif status == ARGV[1] and (ARGV[2] == '' or kind == ARGV[2]) then
    local job = redis.call('HGETALL', KEYS[2] .. id)
    job[#job + 1], job[#job + 2] = 'id', id
    reply[#reply + 1] = job
  end
end
if #ids == 2 * tonumber(ARGV[3]) then
  reply[1], reply[2] = ids[#ids], ids[#ids - 1]
end
return reply
