-- release.lua: gives a reserved piece back (the demo shop; its database failed after reserve.lua).
--
-- KEYS   1 the drop's pieces left
-- ARGV   none
-- Reply  1 it is back | 0 the count has ended in the meantime: nothing to give back to
-- Example  key shop:{drop:42}:stock holding 99: 1, and the count is 100
assert(#KEYS == 1 and #ARGV == 0, 'release takes one key')
local stock = KEYS[1]

if redis.call('EXISTS', stock) == 0 then
  return 0
end
redis.call('INCR', stock)
return 1
