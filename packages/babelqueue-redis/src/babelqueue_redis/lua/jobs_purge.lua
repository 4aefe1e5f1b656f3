-- Forget jobs that were finished long enough ago.
--
-- KEYS[1]  the finished jobs of one status, a sorted set of ids by when
-- KEYS[2]  kinds, a sorted set of <kind>\0<id>
-- KEYS[3]  what the key of a job begins with
-- ARGV[1]  now, epoch ms; '' asks the server's clock
-- ARGV[2]  how long they are kept, ms
-- ARGV[3]  how many to forget at most
-- ARGV[4]  the status
--
-- Reply: 1 when more may be left, or 0.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. string.sub('00000' .. time[2], -6, -4)
end
redis.call('ZCARD', KEYS[2])
local until_then = string.format('%.0f', now - ARGV[2])
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', until_then, 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do
  local kind, status = unpack(redis.pcall('HMGET', KEYS[3] .. id, 'kind', 'status'))
  redis.call('ZREM', KEYS[1], id)
  if kind and status == ARGV[4] then -- else somebody without indexes gave it another one
    redis.call('ZREM', KEYS[2], kind .. '\0' .. id)
    redis.call('DEL', KEYS[3] .. id)
  end
end
return #ids == tonumber(ARGV[3]) and 1 or 0
