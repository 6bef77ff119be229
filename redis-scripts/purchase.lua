-- purchase.lua: purchases begin and end, many in one call.
--
-- claim  takes the pass until the purchase is settled or the lease ends. The person need not be among `passes`: a direct
--        pass, or one from before Redis restarted empty, is as good.
-- spent  it succeeded: no pass of this person given out so far buys again, also when the lease is long over.
-- back   it did not: only this purchase's own claim goes.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 lease_ms; 10 user id; 11 its pass's expiry (s); 12 nonce; 13.. claim, spent or back
-- Reply  now, then for each purchase, in the order of the call:
--        claim: 1 granted | 2 spent or revoked | 3 in use by another purchase | 4 expired
--        spent, back: 5 nothing counted (given back, or settled before) | 6 a queue's pass is used up | 7 a direct one
-- Example  7 claims a pass until 1300 with nonce n1 for 15000 ms at 1000000, and 8's purchase n2 succeeded: 1000000 1 6
assert(#ARGV >= 13 and #ARGV % 4 == 1, 'purchase takes lease_ms, then user, expiry, nonce, what for each purchase')

local GRANTED, SPENT, IN_USE, EXPIRED, NOTHING, CONSUMED, DIRECT_CONSUMED = 1, 2, 3, 4, 5, 6, 7
-- Small hashes of short values Redis keeps as lists, and reads them from the front. With this a value is over 64 bytes long,
-- and the hash is a table.
local PADDING = '         '
local lease_until = string.format('%.0f', now + tonumber(ARGV[9]))
local new_floor = string.format('%.0f', now_s + token_ttl_s)
local alive = redis.call('EXISTS', seq) == 1

-- What is known of each person, read once; the calls below see what those before them did.
local users, spenders, floor_of, claim_of, pass_of = {}, {}, {}, {}, {}
for i = 10, #ARGV, 4 do
  users[#users + 1] = ARGV[i]
  if alive and ARGV[i + 3] == 'spent' then
    spenders[#spenders + 1] = ARGV[i]
  end
end
local read_floors, read_claims = redis.call('ZMSCORE', floors, unpack(users)), redis.call('HMGET', claims, unpack(users))
for i, user in ipairs(users) do
  floor_of[user], claim_of[user] = tonumber(read_floors[i]) or 0, read_claims[i]
end
if #spenders > 0 then
  for i, expiry in ipairs(redis.call('ZMSCORE', passes, unpack(spenders))) do
    pass_of[spenders[i]] = tonumber(expiry)
  end
end
local raised, reclaimed, used, direct_consumed = {}, {}, {}, 0

local function holds(user, nonce)
  return claim_of[user] and string.sub(claim_of[user], 1, #nonce + 1) == nonce .. ' '
end

local function claim(user, expiry, nonce)
  if tonumber(expiry) <= floor_of[user] then
    return SPENT
  end
  if tonumber(expiry) <= now_s then
    return EXPIRED
  end
  -- What somebody else wrote there holds nothing.
  local held_until = claim_of[user] and tonumber(string.match(claim_of[user], ' (%d+)$')) or 0
  if held_until > now and not holds(user, nonce) then
    return IN_USE
  end
  claim_of[user] = nonce .. PADDING .. expiry .. ' ' .. lease_until
  reclaimed[user] = true
  return GRANTED
end

local function settle(user, expiry_text, nonce, is_spent)
  local expiry = tonumber(expiry_text)
  if holds(user, nonce) then
    claim_of[user] = false
    reclaimed[user] = true
  end
  if not is_spent or expiry <= floor_of[user] then
    return NOTHING
  end
  local floor_text = expiry > tonumber(new_floor) and expiry_text or new_floor
  local floor = tonumber(floor_text)
  floor_of[user] = floor
  raised[#raised + 1], raised[#raised + 2] = floor_text, user
  if pass_of[user] and pass_of[user] <= floor then
    pass_of[user] = nil
    used[#used + 1] = user
    return CONSUMED
  end
  if alive and expiry > now_s then
    direct_consumed = direct_consumed + 1
    return DIRECT_CONSUMED
  end
  return NOTHING
end

local reply = { now }
for i = 10, #ARGV, 4 do
  local user, expiry, nonce, what = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local is_claim = what == 'claim'
  reply[#reply + 1] = is_claim and claim(user, expiry, nonce) or settle(user, expiry, nonce, what == 'spent')
end

local taken, ended = {}, {}
for user in pairs(reclaimed) do
  if claim_of[user] then
    taken[#taken + 1], taken[#taken + 2] = user, claim_of[user]
  else
    ended[#ended + 1] = user
  end
end
-- What needs room comes first: a full Redis refuses here, before anything is written, and claims go on holding.
if #raised > 0 then
  redis.call('ZADD', floors, unpack(raised))
end
if #taken > 0 then
  redis.call('HSET', claims, unpack(taken))
end
if #ended > 0 then
  redis.call('HDEL', claims, unpack(ended))
end
if #used > 0 then
  redis.call('HINCRBY', stats, 'consumed', redis.call('ZREM', passes, unpack(used)))
end
if direct_consumed > 0 then
  redis.call('HINCRBY', stats, 'direct_consumed', direct_consumed)
end
if #raised > 0 then
  slide_after(floors)
end
if #taken > 0 then
  slide_after(claims)
end
return reply
