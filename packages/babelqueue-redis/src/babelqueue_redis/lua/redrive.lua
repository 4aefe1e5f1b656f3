-- Move one dead letter, in another form, to the end of a queue.
--
-- KEYS[1]  the dead-letter queue's ready list
-- KEYS[2]  the ready list that takes ARGV[2]
-- KEYS[3]  optional: the notify list beside KEYS[1]
-- KEYS[4]  optional: the notify list beside KEYS[2]
-- ARGV[1]  the dead letter as it is stored
-- ARGV[2]  the message to append
-- ARGV[3]  how many elements to look at, from the head
--
-- Reply: 1, or 0 when the dead letter is not there any more; then nothing was touched.

-- The gate. Nothing moves a dead letter away from the head, so a look that far is enough.
if not redis.call('LPOS', KEYS[1], ARGV[1], 'MAXLEN', ARGV[3]) then
  return 0
end
-- Nothing may be half done: a key of the wrong type must stop us before the first write.
redis.call('LLEN', KEYS[2])
if KEYS[3] then
  redis.call('LLEN', KEYS[3])
  redis.call('LLEN', KEYS[4])
end
-- It changes nothing, but it is a write that is allowed at maxmemory; the script may then go on.
redis.call('LTRIM', KEYS[1], 0, -1)
redis.call('RPUSH', KEYS[2], ARGV[2])
if KEYS[3] then
  redis.call('RPUSH', KEYS[4], 1)
end
redis.call('LREM', KEYS[1], 1, ARGV[1])
if KEYS[3] then
  redis.call('LPOP', KEYS[3])
end
return 1
