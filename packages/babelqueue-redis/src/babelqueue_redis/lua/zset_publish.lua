-- Append messages to the ready list, with one wake-up token each.
--
-- KEYS[1]  ready list
-- KEYS[2]  notify list
-- ARGV     the messages
--
-- Reply: how many were appended.

-- Nothing may be half done: a notify key of the wrong type must stop us before the first write.
redis.call('LLEN', KEYS[2])
local tokens = {}
for index = 1, #ARGV do
  tokens[index] = 1
end
redis.call('RPUSH', KEYS[1], unpack(ARGV))
redis.call('RPUSH', KEYS[2], unpack(tokens))
return #ARGV
