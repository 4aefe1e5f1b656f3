-- Count the messages of a queue, all at one moment.
--
-- KEYS[1]  ready list
-- KEYS[2]  the dead-letter queue's ready list
-- KEYS[3]  processing list
-- KEYS[4]  deadlines
--
-- Reply: {ready, delayed, reserved, dead, overdue}; nothing is delayed in this layout.

local ready, dead = redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2])
local overdue = redis.call('ZCOUNT', KEYS[4], '-inf', redis.call('TIME')[1])
return {ready, 0, redis.call('LLEN', KEYS[3]), dead, overdue}
