-- evict.lua: before each batch, who fell silent goes, passes that are over are counted, and what no longer matters is
-- pruned: at most 250 of each a call, and of silent people no more than this tick may still evict. Slides nothing.
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

-- A floor in the past refuses only passes that are over anyway. It is kept for the life of a pass longer: a clock that was
-- ahead for a while, by no more than that, makes no spent pass live again when it comes back.
local settled = redis.call('ZRANGE', floors, '-inf', now_s - token_ttl_s, 'BYSCORE', 'LIMIT', 0, CHUNK)
if #settled > 0 then
  redis.call('ZREM', floors, unpack(settled))
end

-- Claims whose lease is over: left by a replica that died in the middle of a purchase.
local scan = redis.call('HSCAN', claims, redis.call('HGET', stats, 'claims_cursor') or '0', 'COUNT', CHUNK)
redis.call('HSET', stats, 'claims_cursor', scan[1])
for i = 1, #scan[2], 2 do
  local lease_until = tonumber(string.match(scan[2][i + 1], ' (%d+)$'))
  if not lease_until or lease_until <= now then
    redis.call('HDEL', claims, scan[2][i])
  end
end

-- Entry times older than anybody who waits.
local oldest = tonumber(redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2]) or tonumber(redis.call('GET', seq))
local needed = redis.call('ZREVRANGEBYSCORE', marks, oldest, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
if needed then
  redis.call('ZREMRANGEBYSCORE', marks, '-inf', '(' .. needed)
end

local more = #silent == CHUNK or #over == CHUNK
return { now, 1, evicted, expired, more and 1 or 0 }
