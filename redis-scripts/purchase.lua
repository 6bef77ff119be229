-- purchase.lua: purchases begin and end, many in one call.
--
-- claim  takes the pass until the purchase is settled or the lease ends. The person need not be in `passes`: a direct
--        pass, or one from before Redis restarted empty, is as good.
-- spent  it succeeded: no pass that this person was given so far buys again, also if the lease ended long ago.
-- back   it failed: only this purchase's own claim is removed.
-- check  whether the pass could be claimed. Takes and writes nothing, and ignores another purchase under way.
-- all    a purchase that needed no pass succeeded some ms ago: no pass that this person was given until then buys
--        again, of any kind and with any claim on it. The one in `passes` is consumed, if it had not ended at the sale.
--        A direct pass counts nowhere: the gate has not seen one. With 0 ms the live pass is spent whatever its expiry;
--        a repeated call says how long ago the sale was, and leaves passes given since.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 lease_ms; 10 user id; 11 pass expiry (s), for all: ms ago; 12 nonce; 13.. one of
--        the words above, and so on; check and all have no nonce: ''
-- Reply  now, then for each purchase, in the order of the call:
--        claim, check: 1 granted | 2 spent or revoked | 3 in use by another purchase | 4 expired
--        spent, back, all: 5 nothing counted (given back, settled before) | 6 a queue's pass used up | 7 a direct one
-- Example  7 claims a pass until 1300 with nonce n1 for 15000 ms at 1000000; 8's purchase n2 succeeded; 9's pass until
--          1300 could be claimed; 10 has a pass from the queue and bought without showing it: 1000000 1 6 1 6
assert(#ARGV >= 13 and #ARGV % 4 == 1, 'purchase takes lease_ms, then user, expiry, nonce, what for each purchase')

local GRANTED, SPENT, IN_USE, EXPIRED, NOTHING, CONSUMED, DIRECT_CONSUMED = 1, 2, 3, 4, 5, 6, 7
-- Redis keeps small hashes of short values as lists and reads them from the front. With this padding a value is over 64
-- bytes long, and the hash is a table.
local PADDING = '         '
local lease_until = string.format('%.0f', now + tonumber(ARGV[9]))
local new_floor = string.format('%.0f', now_s + token_ttl_s)
local alive = redis.call('EXISTS', seq) == 1

-- The state of each person, read once; each call below sees what the calls before it did.
local users, spenders, floor_of, claim_of, pass_of = {}, {}, {}, {}, {}
for i = 10, #ARGV, 4 do
  users[#users + 1] = ARGV[i]
  if alive and (ARGV[i + 3] == 'spent' or ARGV[i + 3] == 'all') then
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

local function check(user, expiry)
  if tonumber(expiry) <= floor_of[user] then
    return SPENT
  end
  return tonumber(expiry) <= now_s and EXPIRED or GRANTED
end

local function claim(user, expiry, nonce)
  local checked = check(user, expiry)
  if checked ~= GRANTED then
    return checked
  end
  -- A value in another format, which someone else wrote, holds nothing.
  local held_until = claim_of[user] and tonumber(string.match(claim_of[user], ' (%d+)$')) or 0
  if held_until > now and not holds(user, nonce) then
    return IN_USE
  end
  claim_of[user] = nonce .. PADDING .. expiry .. ' ' .. lease_until
  reclaimed[user] = true
  return GRANTED
end

local function raise(user, floor_text)
  floor_of[user] = tonumber(floor_text)
  raised[#raised + 1], raised[#raised + 2] = floor_text, user
end

local function use_up(user)
  pass_of[user] = nil
  used[#used + 1] = user
  return CONSUMED
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
  raise(user, floor_text)
  if pass_of[user] and pass_of[user] <= floor_of[user] then
    return use_up(user)
  end
  if alive and expiry > now_s then
    direct_consumed = direct_consumed + 1
    return DIRECT_CONSUMED
  end
  return NOTHING
end

local function spend_all(user, ago_ms)
  local sold_s = math.floor(math.max(0, now - tonumber(ago_ms)) / 1000)
  local floor, pass = sold_s + token_ttl_s, pass_of[user]
  if pass and tonumber(ago_ms) == 0 then
    floor = math.max(floor, pass)
  end
  if floor <= floor_of[user] then
    return NOTHING
  end
  raise(user, string.format('%.0f', floor))
  -- The sweep counts a pass that had ended.
  return pass and pass > sold_s and pass <= floor and use_up(user) or NOTHING
end

local function answer(user, number, nonce, what)
  if what == 'claim' then
    return claim(user, number, nonce)
  elseif what == 'check' then
    return check(user, number)
  elseif what == 'all' then
    return spend_all(user, number)
  end
  return settle(user, number, nonce, what == 'spent')
end

local reply = { now }
for i = 10, #ARGV, 4 do
  reply[#reply + 1] = answer(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end

local taken, ended = {}, {}
for user in pairs(reclaimed) do
  if claim_of[user] then
    taken[#taken + 1], taken[#taken + 2] = user, claim_of[user]
  else
    ended[#ended + 1] = user
  end
end
-- Writes that need memory come first: a full Redis refuses here, before anything is written, and claims still hold.
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
