-- adopt.lua: an outage is over. Takes over people whom a replica let through meanwhile with a direct pass: the place
-- goes, so that nobody keeps a ghost of it, and the pass is recorded, so that whoever comes again gets the same one and
-- no second. At most 250 people a call; may be repeated. A target without a queue stays without one.
--
-- The books: a pass that is recorded counts as issued, whatever `direct` counted before; somebody who had no place (came
-- only during the outage) counts as entered as well. Where the pass has ended meanwhile (over, spent, revoked), the
-- place is given up for it: left. A purchase with it is in direct_consumed then, else in consumed.
--
-- Somebody with another live pass (admitted just before the outage, or by a poll just after it) keeps whichever lasts
-- longer, and no counter moves. The other is not made invalid, since it may be the one in their hands; they still buy
-- once, because a claim holds both and spending either ends both (purchase.lua).
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 a user id; 10.. the expiry (s) of that person's pass, and more such pairs
-- Reply  now, issued, expired (older passes found to be over), left
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
