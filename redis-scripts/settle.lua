-- settle.lua: purchases ended. Spent: no pass of this person given out so far buys again, also when the lease is
-- long over. Given back: only this purchase's own claim goes.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 user id; 10 its pass's expiry (s); 11 nonce; 12.. spent | back, then the next
-- Reply  now, then for each purchase, in the order of the call:
--        0 nothing counted (given back, or settled before) | 1 a queue's pass is used up | 2 a direct one
-- Example  7's purchase n1 succeeded: 1000000 1
assert(#ARGV >= 12 and #ARGV % 4 == 0, 'settle takes user, expiry, nonce, how for each purchase')

local NOTHING, CONSUMED, DIRECT_CONSUMED = 0, 1, 2
local alive = redis.call('EXISTS', seq) == 1
local written = false

local function settle(user, expiry, nonce, how)
  local held = redis.call('HGET', claims, user)
  if held and string.match(held, '^(%S+) ') == nonce then
    redis.call('HDEL', claims, user)
  end
  local floor = tonumber(redis.call('ZSCORE', floors, user)) or 0
  if how ~= 'spent' or expiry <= floor then
    return NOTHING
  end
  floor = math.max(expiry, now_s + token_ttl_s)
  redis.call('ZADD', floors, floor, user)
  written = true
  local pass = tonumber(redis.call('ZSCORE', passes, user))
  if alive and pass and pass <= floor and redis.call('ZREM', passes, user) == 1 then
    redis.call('HINCRBY', stats, 'consumed', 1)
    return CONSUMED
  end
  if alive and expiry > now_s then
    redis.call('HINCRBY', stats, 'direct_consumed', 1)
    return DIRECT_CONSUMED
  end
  return NOTHING
end

local reply = { now }
for i = 9, #ARGV, 4 do
  reply[#reply + 1] = settle(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3])
end
if written then
  slide()
end
return reply
