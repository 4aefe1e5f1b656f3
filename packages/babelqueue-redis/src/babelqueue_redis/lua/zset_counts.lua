-- Count the messages of a queue, all at one moment.
--
-- KEYS[1]  ready list
-- KEYS[2]  the dead-letter queue's ready list
-- KEYS[3]  reserved, a sorted set
-- KEYS[4]  delayed, a sorted set
--
-- Reply: {ready, delayed, reserved, dead, overdue}

local ready, dead = redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2])
local overdue = redis.call('ZCOUNT', KEYS[3], '-inf', redis.call('TIME')[1])
return {ready, redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[3]), dead, overdue}
