-- End a reservation: remove it, and put another form of the message somewhere when asked to.
--
-- KEYS[1]  reserved, a sorted set
-- KEYS[2]  optional: the ready list, of this queue or of a dead-letter queue, that takes ARGV[2]
-- KEYS[3]  optional: the notify list beside it
-- ARGV[1]  the reserved member
-- ARGV[2]  the message to append
--
-- Reply: 1, or 0 when the reservation is not there any more; then nothing was touched.

if KEYS[2] then
  redis.call('LLEN', KEYS[2])
  redis.call('LLEN', KEYS[3])
end
-- The gate. It is also the first write, which is why the script may go on at maxmemory.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if KEYS[2] then
  redis.call('RPUSH', KEYS[2], ARGV[2])
  redis.call('RPUSH', KEYS[3], 1)
end
return 1
