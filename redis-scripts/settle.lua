-- settle.lua: a purchase ended. Spent: no pass of this person given out so far buys again, also when the lease is
-- long over. Given back: only this purchase's own claim goes.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 user id; 10 the pass's expiry (s); 11 nonce; 12 spent | back
-- Reply  now, what: 0 nothing counted (given back, or settled before) | 1 a queue's pass is used up | 2 a direct one
-- Example  7's purchase n1 succeeded: 1000000 1
assert(#ARGV == 12, 'settle takes user, expiry, nonce, how')
local user, expiry, nonce, how = ARGV[9], tonumber(ARGV[10]), ARGV[11], ARGV[12]

local held = redis.call('HGET', claims, user)
if held and string.match(held, '^(%S+) ') == nonce then
  redis.call('HDEL', claims, user)
end
local floor = tonumber(redis.call('ZSCORE', floors, user)) or 0
if how ~= 'spent' or expiry <= floor then
  return { now, 0 }
end

floor = math.max(expiry, now_s + token_ttl_s)
redis.call('ZADD', floors, floor, user)
local counted = 0
local alive = redis.call('EXISTS', seq) == 1
local pass = tonumber(redis.call('ZSCORE', passes, user))
if alive and pass and pass <= floor and redis.call('ZREM', passes, user) == 1 then
  redis.call('HINCRBY', stats, 'consumed', 1)
  counted = 1
elseif alive and expiry > now_s then
  redis.call('HINCRBY', stats, 'direct_consumed', 1)
  counted = 2
end
slide()
return { now, counted }
