-- End reservations whose messages are done with, then take the next jobs from the head of the ready
-- list: note them as reserved, attempts raised in the note.
--
-- KEYS[1]  ready list
-- KEYS[2]  reserved, a sorted set
-- KEYS[3]  notify list
-- KEYS[4]  delayed, a sorted set
-- ARGV[1]  the terms, words between spaces, and - for none:
--            now, whole epoch seconds; none asks the server's clock
--            how many to take at most, up to 1000; with 0 the ready list is not looked at
--            the lease, whole seconds; none is for ever
--            how many bytes of them, about; one is taken whatever its size
--            a job with as many attempts as this is taken alone; none is never
--            1 to take nothing while something is due, because that is to be migrated first
-- ARGV     from there on, the reserved members that end
--
-- Reply: {job, member, job, member, ...}. Where that is not all there is to say: {due, ended, notes,
-- job, member, ...}, where due is 1 or 0, ended has a digit for each member that ends, 1, or 0 when
-- it is not there any more, and notes has a letter for each job: a when it was taken alone, x when it
-- could not be counted: then it is no envelope, and the member is the job; else a dot.

local call, match, jobs, scored, notes, ended = redis.call, string.match, {}, {}, {}, {}
local now, wanted, lease, bytes, alone, looks = match(ARGV[1], '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
local function counted(job)
  local known, decoded = pcall(cjson.decode, job)
  local count = known and type(decoded) == 'table' and decoded['attempts']
  if type(count) ~= 'number' then return job end
  -- Encoding again damages 15-digit integers, 1.0 and []. Where the text ends in the member
  -- "attempts" of the root object, patch its digits instead. The job is valid JSON, so the last
  -- brace closes the root, and the digits before it are a value of the root. The quote before the
  -- name follows a comma or a brace, not a backslash, so it is no part of a string; were it the
  -- end of one, the name would stand between two strings, which is no JSON. So it begins the key.
  local digits = match(job, '[,{]"attempts":(%d+)}$', -40)
  if digits and #digits <= 15 and (digits == '0' or string.sub(digits, 1, 1) ~= '0') then
    return string.sub(job, 1, -2 - #digits) .. string.format('%.0f', count + 1) .. '}', count
  end
  decoded['attempts'] = count + 1
  local fits, encoded = pcall(cjson.encode, decoded)
  return fits and encoded or job, fits and count
end
-- The other lists are read before the first write: a key of the wrong type must stop us before it.
local second = now ~= '-' and now or call('TIME')[1]
local due = looks == '1' and (call('ZCOUNT', KEYS[4], '-inf', second) > 0
  or lease ~= '-' and call('ZCOUNT', KEYS[2], '-inf', second) > 0)
local deadline, room = lease == '-' and '+inf' or string.format('%d', second + lease), tonumber(bytes)
local limit, some = due and 0 or tonumber(wanted), 1
call('LLEN', KEYS[3]) while #notes < limit and room > 0 do
  local found = call('LRANGE', KEYS[1], #notes, #notes + some - 1)
  limit = #found < some and #notes + #found or limit
  for _, job in ipairs(found) do
    local member, count = counted(job)
    local note = not count and 'x' or count >= (tonumber(alone) or math.huge) and 'a' or '.'
    if room <= 0 or note == 'a' and #notes > 0 then room = 0 break end
    jobs[#jobs + 1], jobs[#jobs + 2], notes[#notes + 1] = job, member, note
    scored[#jobs - 1], scored[#jobs], room = deadline, member, note == 'a' and 0 or room - #job
  end
  some = math.max(1, math.min(10, limit - #notes, math.floor(room / #(jobs[#jobs] or ''))))
end
-- The first write: a key of the wrong type stops it, and maxmemory does not, nor what follows.
if #ARGV == 1 then call('ZREM', KEYS[2], '\0no member') end
for i = 2, #ARGV do ended[i - 1] = call('ZREM', KEYS[2], ARGV[i]) end
if #notes > 0 then
  call('ZADD', KEYS[2], unpack(scored))
  call('LTRIM', KEYS[1], #notes, -1)
  call('LPOP', KEYS[3], #notes)
end
if not due and not string.find(table.concat(ended) .. table.concat(notes), '[0ax]') then return jobs end
return {due and 1 or 0, table.concat(ended), table.concat(notes), unpack(jobs)}
