-- admit.lua: one tick. Moves the mark past the next batch of people who are there, if a batch is due. The guarantee
-- that no window of one tick sees more than one batch is here and only here (DESIGN 3.2). Slides nothing.
--
-- Numbers whose owners left take no slot. Silent people met on the way are evicted, at most max_evict; the mark never
-- passes somebody who is neither counted nor evicted, and never goes beyond the last number given.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua
-- Reply  now, 0 (no queue) | now, 1, wait_ms (too early, or paused) |
--        now, 2, people, evicted, next_in_ms, late_ms
-- Example  250 people wait, the first tick 3 ms late: 1002003 2 100 0 2000 3; again at once: 1002003 1 2000
assert(#ARGV == 8, 'admit takes nothing of its own')
local CHUNK = 1000
local RATE_WINDOW_MS = 60000

if redis.call('EXISTS', seq) == 0 then
  return { now, 0 }
end
local since = silent_since()

-- Redis's time alone counts. A time further ahead than a tick is from another clock: start over.
local next_allowed = tonumber(redis.call('HGET', stats, 'next_allowed'))
if not next_allowed or next_allowed > now + tick_ms then
  redis.call('HSET', stats, 'next_allowed', now + tick_ms)
  return { now, 1, tick_ms }
end
if now < next_allowed then
  return { now, 1, next_allowed - now }
end
if paused then
  return { now, 1, tick_ms }
end
redis.call('HSET', stats, 'next_allowed', now + tick_ms)

local size = room()
local people, evicted, through = 0, 0, mark
local at_bound = false
while people < size and not at_bound do
  local wanted = math.min(CHUNK, size - people)
  local line = redis.call('ZRANGE', waiting, '(' .. through, '+inf', 'BYSCORE', 'LIMIT', 0, wanted, 'WITHSCORES')
  if #line == 0 then
    break
  end
  local users = {}
  for i = 1, #line, 2 do
    users[#users + 1] = line[i]
  end
  local polled = redis.call('ZMSCORE', heartbeat, unpack(users))
  local silent = {}
  for i = 1, #users do
    if (tonumber(polled[i]) or 0) > since then
      people = people + 1
    elseif evicted + #silent < max_evict then
      silent[#silent + 1] = users[i]
    else
      at_bound = true
      break
    end
    through = tonumber(line[2 * i])
  end
  if #silent > 0 then
    evicted = evicted + redis.call('ZREM', waiting, unpack(silent))
    redis.call('ZREM', heartbeat, unpack(silent))
  end
  if #users < wanted then
    break
  end
end

if through > mark then
  redis.call('SET', admitted_count, through, 'KEEPTTL')
end
if evicted > 0 then
  redis.call('HINCRBY', stats, 'evicted', evicted)
end
if people > 0 then
  redis.call('HINCRBY', stats, 'admitted', people)
  -- The batches of the last minute, for the rate: "ms:people ms:people".
  local recent = {}
  for at, n in string.gmatch(redis.call('HGET', stats, 'recent') or '', '(%d+):(%d+)') do
    if tonumber(at) > now - RATE_WINDOW_MS and tonumber(at) <= now then
      recent[#recent + 1] = at .. ':' .. n
    end
  end
  recent[#recent + 1] = string.format('%.0f:%.0f', now, people)
  redis.call('HSET', stats, 'recent', table.concat(recent, ' '))
end
return { now, 2, people, evicted, tick_ms, now - next_allowed }
