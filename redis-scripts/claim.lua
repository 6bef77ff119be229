-- claim.lua: purchases begin. Each takes its pass until it is settled or the lease ends. The person need not be among
-- `passes`: a direct pass, or one from before Redis restarted empty, is as good.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 lease_ms; 10 user id; 11 its pass's expiry (s); 12.. nonce, then the next
-- Reply  now, then for each purchase, in the order of the call:
--        1 granted | 2 spent or revoked | 3 in use by another purchase | 4 expired
-- Example  7 claims a pass until 1300 with nonce n1 for 15000 ms at 1000000: 1000000 1
assert(#ARGV >= 12 and #ARGV % 3 == 0, 'claim takes lease_ms, then user, expiry, nonce for each purchase')

local GRANTED, SPENT, IN_USE, EXPIRED = 1, 2, 3, 4
local lease_until = string.format('%.0f', now + tonumber(ARGV[9]))

local users = {}
for i = 10, #ARGV, 3 do
  users[#users + 1] = ARGV[i]
end
local floor_of, claim_of = {}, {}
local read_floors, read_claims = redis.call('ZMSCORE', floors, unpack(users)), redis.call('HMGET', claims, unpack(users))
for i, user in ipairs(users) do
  floor_of[user], claim_of[user] = tonumber(read_floors[i]) or 0, read_claims[i]
end

-- What is granted to the first of two purchases of one person, the second sees.
local granted = {}
local function claim(user, expiry, nonce)
  if tonumber(expiry) <= floor_of[user] then
    return SPENT
  end
  if tonumber(expiry) <= now_s then
    return EXPIRED
  end
  if claim_of[user] then
    local holder, held_until = string.match(claim_of[user], '^(%S+) %d+ (%d+)$')
    if holder ~= nonce and tonumber(held_until) > now then
      return IN_USE
    end
  end
  claim_of[user] = nonce .. ' ' .. expiry .. ' ' .. lease_until
  granted[#granted + 1], granted[#granted + 2] = user, claim_of[user]
  return GRANTED
end

local reply = { now }
for i = 10, #ARGV, 3 do
  reply[#reply + 1] = claim(ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
if #granted > 0 then
  redis.call('HSET', claims, unpack(granted))
  slide_after(claims)
end
return reply
