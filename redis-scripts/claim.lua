-- claim.lua: purchases begin. Each takes its pass until it is settled or the lease ends. The person need not be among
-- `passes`: a direct pass, or one from before Redis restarted empty, is as good.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 user id; 10 its pass's expiry (s); 11 nonce; 12.. lease_ms, then the next
-- Reply  now, then for each purchase, in the order of the call:
--        1 granted | 2 spent or revoked | 3 in use by another purchase | 4 expired
-- Example  7 claims a pass until 1300 with nonce n1 for 15000 ms at 1000000: 1000000 1
assert(#ARGV >= 12 and #ARGV % 4 == 0, 'claim takes user, expiry, nonce, lease_ms for each purchase')

local GRANTED, SPENT, IN_USE, EXPIRED = 1, 2, 3, 4

local function claim(user, expiry, nonce, lease_ms)
  local floor = tonumber(redis.call('ZSCORE', floors, user)) or 0
  if expiry <= floor then
    return SPENT
  end
  if expiry <= now_s then
    return EXPIRED
  end
  local held = redis.call('HGET', claims, user)
  if held then
    local holder, lease_until = string.match(held, '^(%S+) %d+ (%d+)$')
    if holder ~= nonce and tonumber(lease_until) > now then
      return IN_USE
    end
  end
  redis.call('HSET', claims, user, string.format('%s %.0f %.0f', nonce, expiry, now + lease_ms))
  return GRANTED
end

local reply, granted = { now }, false
for i = 9, #ARGV, 4 do
  local what = claim(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], tonumber(ARGV[i + 3]))
  granted = granted or what == GRANTED
  reply[#reply + 1] = what
end
if granted then
  slide()
end
return reply
