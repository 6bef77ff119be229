-- stats.lua: the books of a target, read at one moment. Writes nothing.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua
-- Reply  now, alive, capacity, batch, tick_ms, paused, then if alive:
--        waiting, mark, last number, entered, issued, left, evicted, live, consumed, expired, revoked, direct,
--        direct_consumed, admitted, people admitted in the window, window_ms, wait_sum_ms,
--        then pairs: wait bucket, people
-- Example  an unused target: 1000000 0 100000 100 2000 0
assert(#ARGV == 8, 'stats takes nothing of its own')
local RATE_WINDOW_MS = 60000

local head = { now, redis.call('EXISTS', seq), capacity, batch, tick_ms, paused and 1 or 0 }
if head[2] == 0 then
  return head
end

local fields = {}
local all = redis.call('HGETALL', stats)
for i = 1, #all, 2 do
  fields[all[i]] = all[i + 1]
end
local function count(name)
  return tonumber(fields[name]) or 0
end

local in_window = 0
for at, n in string.gmatch(fields['recent'] or '', '(%d+):(%d+)') do
  if tonumber(at) > now - RATE_WINDOW_MS and tonumber(at) <= now then
    in_window = in_window + tonumber(n)
  end
end
local window_ms = math.min(RATE_WINDOW_MS, math.max(tick_ms, now - (tonumber(fields['born']) or 0)))

-- Passes that have ended and are not swept yet count as expired: the sum is the same.
local live = redis.call('ZCOUNT', passes, '(' .. now_s, '+inf')
local over = redis.call('ZCARD', passes) - live

local reply = {
  head[1], head[2], head[3], head[4], head[5], head[6],
  redis.call('ZCARD', waiting), mark, tonumber(redis.call('GET', seq)),
  count('entered'), count('issued'), count('left'), count('evicted'),
  live, count('consumed'), count('expired') + over, count('revoked'),
  count('direct'), count('direct_consumed'), count('admitted'), in_window, window_ms, count('wait_sum_ms'),
}
for name, people in pairs(fields) do
  local bucket = string.match(name, '^wait:(%d+)$')
  if bucket then
    reply[#reply + 1] = tonumber(bucket)
    reply[#reply + 1] = tonumber(people)
  end
end
return reply
