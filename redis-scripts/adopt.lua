-- adopt.lua: an outage is over. Takes over people whom a replica admitted in the meantime with a direct pass: removes
-- the place, so that no unused place remains, and records the pass, so that asking again gives the same pass and no
-- second one. At most 250 people in a call; may be repeated. A target without a queue stays without one.
--
-- The books: a recorded pass counts as issued, whatever `direct` counted before. A person without a place (who came
-- only during the outage) also counts as entered. If the pass has ended in the meantime (over, spent, revoked), the
-- place is given up: left. A purchase with that pass counts in direct_consumed, one with a recorded pass in consumed.
--
-- A person with another live pass (admitted just before the outage, or by a poll just after it) keeps the one that
-- lasts longer, and no counter moves. The other stays valid, since the person may hold that one. They still buy once,
-- because a claim holds both passes and spending one ends both (purchase.lua).
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 a user id; 10.. the expiry (s) of that person's pass, and more such pairs
-- Reply  now, issued, expired (older passes that had ended), left
-- Example  7 waits and 8 does not, both with a pass until 1300; 9 waits and has spent the one until 1280:
--          1000000 2 0 1
assert(#ARGV >= 10 and #ARGV % 2 == 0, 'adopt takes pairs of user and expiry')

local issued, expired, left, entered = 0, 0, 0, 0
local found = false

local function adopt(user, expiry)
  local had_place = redis.call('ZREM', waiting, user) == 1
  if had_place then
    found = true
    redis.call('ZREM', heartbeat, user)
  end
  local floor = tonumber(redis.call('ZSCORE', floors, user)) or 0
  if expiry <= now_s or expiry <= floor then
    left = left + (had_place and 1 or 0)
    return
  end
  found = true
  local pass = tonumber(redis.call('ZSCORE', passes, user))
  if pass and pass > now_s then
    if expiry > pass then
      redis.call('ZADD', passes, expiry, user)
    end
    return
  end
  expired = expired + (pass and 1 or 0)
  redis.call('ZADD', passes, expiry, user)
  issued = issued + 1
  entered = entered + (had_place and 0 or 1)
end

if redis.call('EXISTS', seq) == 0 then
  return { now, 0, 0, 0 }
end
for i = 9, #ARGV, 2 do
  adopt(ARGV[i], tonumber(ARGV[i + 1]))
end
for name, by in pairs({ issued = issued, expired = expired, left = left, entered = entered }) do
  if by > 0 then
    redis.call('HINCRBY', stats, name, by)
  end
end
if found then
  slide()
end
return { now, issued, expired, left }
