-- Take the head of the ready list: note it as reserved, with attempts raised in the note.
--
-- KEYS[1]  ready list
-- KEYS[2]  reserved, a sorted set
-- KEYS[3]  notify list
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  the lease, whole seconds; '' is for ever
--
-- Reply: {job, member}, or nil when the queue is empty. The two are equal when the job could not be
-- counted: then it is no envelope.

local job = redis.call('LINDEX', KEYS[1], 0)
if not job then
  return false
end
redis.call('LLEN', KEYS[3])
redis.call('ZREM', KEYS[2], '\0no member, but a write that is allowed at maxmemory')

local member = job
local known, decoded = pcall(cjson.decode, job)
if known and type(decoded) == 'table' and type(decoded['attempts']) == 'number' then
  local count = decoded['attempts'] + 1
  decoded['attempts'] = count
  local fits, encoded = pcall(cjson.encode, decoded)
  if fits then
    -- Encoding again damages 15-digit integers, 1.0 and []. Where the text ends in the member
    -- "attempts" of the root object, patch its digits instead. The job is valid JSON, so the last
    -- brace closes the root, and the digits before it are a value of the root. The quote before the
    -- name follows a comma or a brace, not a backslash, so it is no part of a string; were it the
    -- end of one, the name would stand between two strings, which is no JSON. So it begins the key.
    local digits = string.match(string.sub(job, -40), '[,{]"attempts":(%d+)}$')
    if digits and #digits <= 15 and (digits == '0' or string.sub(digits, 1, 1) ~= '0') then
      member = string.sub(job, 1, -2 - #digits) .. string.format('%.0f', count) .. '}'
    else
      member = encoded
    end
  end
end

local deadline = '+inf'
if ARGV[2] ~= '' then
  local now = ARGV[1]
  if now == '' then
    now = redis.call('TIME')[1]
  end
  deadline = string.format('%.0f', math.floor(tonumber(now)) + tonumber(ARGV[2]))
end
redis.call('ZADD', KEYS[2], deadline, member)
redis.call('LPOP', KEYS[1])
redis.call('LPOP', KEYS[3])
return {job, member}
