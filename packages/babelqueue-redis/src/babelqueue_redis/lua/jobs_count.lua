-- Count jobs by status, all at one moment.
--
-- KEYS[1]  due, the pending ones
-- KEYS[2]  claimed
-- KEYS[3]  done
-- KEYS[4]  dead
-- KEYS[5]  canceled
--
-- Reply: five numbers.

return {
  redis.call('ZCARD', KEYS[1]),
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]),
  redis.call('ZCARD', KEYS[5]),
}
