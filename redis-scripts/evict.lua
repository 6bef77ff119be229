-- evict.lua: runs before each batch. Evicts silent people, counts passes that have ended, and prunes what is not needed
-- any more: at most 250 of each in a call, and no more silent people than this tick may still evict. Slides nothing.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua
-- Reply  now, alive, evicted, expired, more (1: call again)
-- Example  three silent people, one pass over: 1000000 1 3 1 0; a target without a queue: 1000000 0 0 0 0
assert(#ARGV == 8, 'evict takes nothing of its own')
local CHUNK = 250

if redis.call('EXISTS', seq) == 0 then
  return { now, 0, 0, 0, 0 }
end
local since = silent_since()

local evicted, silent = 0, {}
if since >= 0 then
  silent = redis.call('ZRANGE', heartbeat, '-inf', since, 'BYSCORE', 'LIMIT', 0, math.min(CHUNK, max_evict))
  if #silent > 0 then
    evicted = redis.call('ZREM', waiting, unpack(silent))
    redis.call('ZREM', heartbeat, unpack(silent))
    redis.call('HINCRBY', stats, 'evicted', evicted)
  end
end

local expired = 0
local over = redis.call('ZRANGE', passes, '-inf', now_s, 'BYSCORE', 'LIMIT', 0, CHUNK)
if #over > 0 then
  expired = redis.call('ZREM', passes, unpack(over))
  redis.call('HINCRBY', stats, 'expired', expired)
end

-- A floor in the past refuses only passes that have ended anyway. It is kept for one more pass lifetime: if a clock was
-- ahead by no more than that and comes back, no spent pass becomes live again.
local settled = redis.call('ZRANGE', floors, '-inf', now_s - token_ttl_s, 'BYSCORE', 'LIMIT', 0, CHUNK)
if #settled > 0 then
  redis.call('ZREM', floors, unpack(settled))
end

-- Removes claims whose lease is over: a replica left them when it died during a purchase.
local scan = redis.call('HSCAN', claims, redis.call('HGET', stats, 'claims_cursor') or '0', 'COUNT', CHUNK)
redis.call('HSET', stats, 'claims_cursor', scan[1])
for i = 1, #scan[2], 2 do
  local lease_until = tonumber(string.match(scan[2][i + 1], ' (%d+)$'))
  if not lease_until or lease_until <= now then
    redis.call('HDEL', claims, scan[2][i])
  end
end

-- Removes entry times that no waiting person needs.
local oldest = tonumber(redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2]) or tonumber(redis.call('GET', seq))
local needed = redis.call('ZREVRANGEBYSCORE', marks, oldest, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
if needed then
  redis.call('ZREMRANGEBYSCORE', marks, '-inf', '(' .. needed)
end

local more = #silent == CHUNK or #over == CHUNK
return { now, 1, evicted, expired, more and 1 or 0 }
