-- claim.lua: a purchase begins. Takes the pass until it is settled or the lease ends. The person need not be among
-- `passes`: a direct pass, or one from before Redis restarted empty, is as good.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 user id; 10 the pass's expiry (s); 11 nonce of this purchase; 12 lease_ms
-- Reply  now, what: 1 granted | 2 spent or revoked | 3 in use by another purchase | 4 expired
-- Example  7 claims a pass until 1300 with nonce n1 for 15000 ms at 1000000: 1000000 1
assert(#ARGV == 12, 'claim takes user, expiry, nonce, lease_ms')
local user, expiry, nonce, lease_ms = ARGV[9], tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12])

local floor = tonumber(redis.call('ZSCORE', floors, user)) or 0
if expiry <= floor then
  return { now, 2 }
end
if expiry <= now_s then
  return { now, 4 }
end
local held = redis.call('HGET', claims, user)
if held then
  local holder, lease_until = string.match(held, '^(%S+) %d+ (%d+)$')
  if holder ~= nonce and tonumber(lease_until) > now then
    return { now, 3 }
  end
end
redis.call('HSET', claims, user, string.format('%s %.0f %.0f', nonce, expiry, now + lease_ms))
slide()
return { now, 1 }
