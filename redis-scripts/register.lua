-- register.lua: makes a target active, if fewer than `limit` are.
--
-- KEYS   1 active   SET of "TYPE:id"   the targets that the pumps tick for
-- ARGV   1 the target's "TYPE:id"   2 limit
-- Reply  1 it is active | 0 there is no room
-- Example  the second target with a limit of 1: 0
assert(#KEYS == 1 and #ARGV == 2, 'register takes the active set, a target and a limit')
local active, target, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])

if redis.call('SISMEMBER', active, target) == 1 then
  return { 1 }
end
if redis.call('SCARD', active) >= limit then
  return { 0 }
end
redis.call('SADD', active, target)
return { 1 }
