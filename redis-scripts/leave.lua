-- leave.lua: a person gives up the place, or the live pass, which the gate refuses from then on.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 user id
-- Reply  now, what: 0 was not here | 1 gave up the place | 2 gave up the pass
-- Example  7 leaves while waiting: 1000000 1
assert(#ARGV == 9, 'leave takes one user')
local user = ARGV[9]

if redis.call('ZREM', waiting, user) == 1 then
  redis.call('ZREM', heartbeat, user)
  redis.call('HINCRBY', stats, 'left', 1)
  return { now, 1 }
end

local expiry = tonumber(redis.call('ZSCORE', passes, user))
-- The sweep counts a pass that has ended.
if not expiry or expiry <= now_s or redis.call('ZREM', passes, user) == 0 then
  return { now, 0 }
end
redis.call('HINCRBY', stats, 'revoked', 1)
-- Every pass this person was given so far is given up, direct ones included. Otherwise leaving during a purchase would
-- prevent that purchase from spending its pass.
local floor = tonumber(redis.call('ZSCORE', floors, user)) or 0
redis.call('ZADD', floors, math.max(floor, expiry, now_s + token_ttl_s), user)
slide()
return { now, 2 }
