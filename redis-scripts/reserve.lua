-- reserve.lua: reserves one piece of a drop's stock, if there is one (the demo shop's gate before its database).
--
-- The count lives for a minute and then comes from the database again, so that a piece reserved by a process that
-- crashed is not lost for good.
--
-- KEYS   1 the drop's pieces left
-- ARGV   1 pieces left according to the database, -1: not known; 2 milliseconds the count lives
-- Reply  1 reserved | 0 sold out | -1 the count is not known: ask the database and call again with it
-- Example  a new drop of 100, key shop:{drop:42}:stock, ARGV 100 60000: 1, and the count is 99
assert(#KEYS == 1 and #ARGV == 2, 'reserve takes one key, pieces left and lifetime')
local stock, left_in_database, lifetime_ms = KEYS[1], tonumber(ARGV[1]), ARGV[2]

local left = tonumber(redis.call('GET', stock))
if not left then
  if left_in_database < 0 then
    return -1
  end
  left = left_in_database
  redis.call('SET', stock, ARGV[1], 'PX', lifetime_ms)
end
if left <= 0 then
  return 0
end
redis.call('DECR', stock)
return 1
