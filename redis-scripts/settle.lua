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

local users = {}
for i = 9, #ARGV, 4 do
  users[#users + 1] = ARGV[i]
end
local floor_of, claim_of, pass_of = {}, {}, {}
local read_floors, read_claims = redis.call('ZMSCORE', floors, unpack(users)), redis.call('HMGET', claims, unpack(users))
local read_passes = redis.call('ZMSCORE', passes, unpack(users))
for i, user in ipairs(users) do
  floor_of[user], claim_of[user] = tonumber(read_floors[i]) or 0, read_claims[i]
  pass_of[user] = alive and tonumber(read_passes[i])
end

-- Floors come first of all writes: a full Redis refuses here, and the claims then still hold.
local spent, raised = {}, {}
local new_floor = now_s + token_ttl_s
for i, user in ipairs(users) do
  local expiry, how = tonumber(ARGV[6 + 4 * i]), ARGV[8 + 4 * i]
  spent[i] = how == 'spent' and expiry > floor_of[user]
  if spent[i] then
    floor_of[user] = math.max(expiry, new_floor)
    raised[#raised + 1], raised[#raised + 2] = floor_of[user], user
  end
end
if #raised > 0 then
  redis.call('ZADD', floors, unpack(raised))
end

local consumed, direct_consumed, ended = 0, 0, {}
local function settle(user, expiry, nonce, is_spent)
  if claim_of[user] and string.match(claim_of[user], '^(%S+) ') == nonce then
    ended[#ended + 1] = user
  end
  if not is_spent or not alive then
    return NOTHING
  end
  if pass_of[user] and pass_of[user] <= floor_of[user] and redis.call('ZREM', passes, user) == 1 then
    consumed = consumed + 1
    return CONSUMED
  end
  if expiry > now_s then
    direct_consumed = direct_consumed + 1
    return DIRECT_CONSUMED
  end
  return NOTHING
end

local reply = { now }
for i, user in ipairs(users) do
  reply[1 + i] = settle(user, tonumber(ARGV[6 + 4 * i]), ARGV[7 + 4 * i], spent[i])
end
if consumed > 0 then
  redis.call('HINCRBY', stats, 'consumed', consumed)
end
if direct_consumed > 0 then
  redis.call('HINCRBY', stats, 'direct_consumed', direct_consumed)
end
if #ended > 0 then
  redis.call('HDEL', claims, unpack(ended))
end
if #raised > 0 then
  slide_after(floors)
end
return reply
