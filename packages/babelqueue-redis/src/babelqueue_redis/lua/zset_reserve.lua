-- End reservations whose messages are done with, then take the next jobs from the head of the ready
-- list: note them as reserved, attempts raised in the note.
--
-- KEYS[1]  ready list
-- KEYS[2]  reserved, a sorted set
-- KEYS[3]  notify list
-- KEYS[4]  delayed, a sorted set
-- ARGV[1]  now, epoch seconds; '' asks the server's clock
-- ARGV[2]  the lease, whole seconds; '' is for ever
-- ARGV[3]  how many to take at most; with 0 the ready list is not looked at
-- ARGV[4]  how many bytes of them, about; one is taken whatever its size
-- ARGV[5]  a job with as many attempts as this is taken alone; '' is never
-- ARGV[6]  1 to take nothing while something is due, because that is to be migrated first
-- ARGV     from there on, the reserved members that end
--
-- Reply: {due, ended, job, member, alone, job, member, alone, ...}, where due and alone are 1 or 0, and
-- ended has for each member 1, or 0 when it is not there any more. Alone is -1 when the job could not
-- be counted: then it is no envelope, and the member is the job.

local wanted, room, alone = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]) or math.huge
-- Nothing may be half done: a key of the wrong type must stop us before the first write.
local length = wanted > 0 and redis.call('LLEN', KEYS[1]) or 0
redis.call('LLEN', KEYS[3])
local ended, leased = {}, ARGV[2] ~= ''
for i = 7, #ARGV do ended[i - 6] = redis.call('ZREM', KEYS[2], ARGV[i]) end
local second = math.floor(tonumber(ARGV[1] ~= '' and ARGV[1] or redis.call('TIME')[1]))
if ARGV[6] == '1' and (redis.call('ZCOUNT', KEYS[4], '-inf', second) > 0 or
    leased and redis.call('ZCOUNT', KEYS[2], '-inf', second) > 0) then return {1, ended} end
local function counted(job)
  local known, decoded = pcall(cjson.decode, job)
  local count = known and type(decoded) == 'table' and decoded['attempts']
  if type(count) ~= 'number' then return job end
  decoded['attempts'] = count + 1
  local fits, encoded = pcall(cjson.encode, decoded)
  if not fits then return job end
  -- Encoding again damages 15-digit integers, 1.0 and []. Where the text ends in the member
  -- "attempts" of the root object, patch its digits instead. The job is valid JSON, so the last
  -- brace closes the root, and the digits before it are a value of the root. The quote before the
  -- name follows a comma or a brace, not a backslash, so it is no part of a string; were it the
  -- end of one, the name would stand between two strings, which is no JSON. So it begins the key.
  local digits = string.match(string.sub(job, -40), '[,{]"attempts":(%d+)}$')
  if digits and #digits <= 15 and (digits == '0' or string.sub(digits, 1, 1) ~= '0') then
    encoded = string.sub(job, 1, -2 - #digits) .. string.format('%.0f', count + 1) .. '}'
  end
  return encoded, count
end
local deadline = leased and string.format('%.0f', second + tonumber(ARGV[2])) or '+inf'
local reply, notes, taken = {0, ended}, {}, 0
while taken < math.min(wanted, length) and room > 0 do
  local job = redis.call('LINDEX', KEYS[1], taken)
  local member, count = counted(job)
  local lonely = count and count >= alone and 1 or 0
  if lonely == 1 and taken > 0 then break end
  taken = taken + 1
  notes[#notes + 1], notes[#notes + 2] = deadline, member
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = job, member, count and lonely or -1
  room = lonely == 1 and 0 or room - #job
end
if taken > 0 then
  redis.call('ZREM', KEYS[2], '\0no member, but a write that is allowed at maxmemory')
  redis.call('ZADD', KEYS[2], unpack(notes))
  redis.call('LTRIM', KEYS[1], taken, -1)
  redis.call('LPOP', KEYS[3], taken)
end
return reply
