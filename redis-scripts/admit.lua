-- admit.lua: one tick. Moves the mark past the next batch of people who are there, if a batch is due. Only this script
-- guarantees at most one batch in any window of one tick (docs/design.md, invariant 2). Slides nothing.
--
-- Numbers whose owners left take no slot. Silent people on the way are evicted, as many as this tick still may. The
-- mark never passes a person who is neither counted nor evicted, and never exceeds the last number given.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua
-- Reply  now, 0 (no queue) | now, 1, wait_ms (too early, or paused) |
--        now, 2, people, evicted, next_in_ms, late_ms
-- Example  250 people wait, the first tick 3 ms late: 1002003 2 100 0 2000 3; again at once: 1002003 1 2000
assert(#ARGV == 8, 'admit takes nothing of its own')
-- If more people than FEW are silent, the script looks at each person it passes, and at a limited number in a call:
-- more would delay all other calls by over 5 ms.
local FEW = 250
local MOST_LOOKED_AT = 1250
local RATE_WINDOW_MS = 60000

if redis.call('EXISTS', seq) == 0 then
  return { now, 0 }
end
local since = silent_since()

-- Only Redis's time counts.
local next_allowed, paid_ms = read_next_allowed()
if not next_allowed then
  next_allowed = pay_a_tick()
end
if now < next_allowed then
  return { now, 1, next_allowed - now }
end
if paused then
  -- A batch after a pause is not late.
  redis.call('HSET', stats, 'next_allowed', now)
  return { now, 1, tick_ms }
end

-- The batches of the last minute: "ms:people ms:people". If the last one paid for a shorter tick than ours (another
-- replica's, or from before an operator changed it), several may lie within our tick: they count into this batch.
local recent, in_window, wait_ms = {}, 0, tick_ms
for at, n in string.gmatch(redis.call('HGET', stats, 'recent') or '', '(%d+):(%d+)') do
  local ago = now - tonumber(at)
  if ago >= 0 and ago < RATE_WINDOW_MS then
    recent[#recent + 1] = at .. ':' .. n
    if paid_ms < tick_ms and ago < tick_ms then
      in_window, wait_ms = in_window + tonumber(n), math.min(wait_ms, tick_ms - ago)
    end
  end
end
if in_window > 0 and in_window >= batch then
  return { now, 1, wait_ms }
end
local size = math.min(room(), batch - in_window)
pay_a_tick()

local people, evicted, through = 0, 0, mark

local function evict(users)
  if #users > 0 then
    evicted = redis.call('ZREM', waiting, unpack(users))
    redis.call('ZREM', heartbeat, unpack(users))
  end
end

-- `silent` has all silent people: nobody else has to be looked at, however large the batch.
local function pass_all_but(silent)
  local line = {}
  for i, number in ipairs(#silent > 0 and redis.call('ZMSCORE', waiting, unpack(silent)) or {}) do
    if number and tonumber(number) > mark then
      line[#line + 1] = { user = silent[i], number = tonumber(number) }
    end
  end
  table.sort(line, function(a, b) return a.number < b.number end)

  local passed = redis.call('ZCOUNT', waiting, '-inf', mark)
  local most = math.min(size, redis.call('ZCARD', waiting) - passed - #line)
  local met = {}
  for _, one in ipairs(line) do
    local there = redis.call('ZRANK', waiting, one.user) - passed - #met
    if there >= size then
      break
    end
    if #met >= max_evict then
      most = there
      break
    end
    met[#met + 1] = one.user
  end
  people = most
  if people + #met > 0 then
    local last = passed + people + #met - 1
    through = tonumber(redis.call('ZRANGE', waiting, last, last, 'WITHSCORES')[2])
  end
  evict(met)
end

local function pass_who_is_there()
  local wanted = math.min(MOST_LOOKED_AT, size + max_evict)
  local line = redis.call('ZRANGE', waiting, '(' .. mark, '+inf', 'BYSCORE', 'LIMIT', 0, wanted, 'WITHSCORES')
  local users = {}
  for i = 1, #line, 2 do
    users[#users + 1] = line[i]
  end
  local polled, met = #users > 0 and redis.call('ZMSCORE', heartbeat, unpack(users)) or {}, {}
  for i = 1, #users do
    if people >= size then
      break
    end
    if (tonumber(polled[i]) or 0) > since then
      people = people + 1
    elseif #met < max_evict then
      met[#met + 1] = users[i]
    else
      break
    end
    through = tonumber(line[2 * i])
  end
  evict(met)
end

local silent = since >= 0 and redis.call('ZRANGE', heartbeat, '-inf', since, 'BYSCORE', 'LIMIT', 0, FEW + 1) or {}
if size > 0 and #silent > FEW then
  pass_who_is_there()
elseif size > 0 then
  pass_all_but(silent)
end

if through > mark then
  redis.call('SET', admitted_count, through, 'KEEPTTL')
end
if evicted > 0 then
  redis.call('HINCRBY', stats, 'evicted', evicted)
end
if people > 0 then
  redis.call('HINCRBY', stats, 'admitted', people)
  recent[#recent + 1] = string.format('%.0f:%.0f', now, people)
  redis.call('HSET', stats, 'recent', table.concat(recent, ' '))
end
return { now, 2, people, evicted, tick_ms, now - next_allowed }
