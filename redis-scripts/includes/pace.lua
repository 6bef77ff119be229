-- At what pace people are let in: the operator's overrides before the rules of the call; and how far it has come.
local batch, tick_ms, capacity, max_active, paused

-- The only place that reads them. An override that is not a whole number in plain digits within its range counts as none
-- (src/store/overrides.rs has the ranges too, and says so in the log). 0 people are a wish, 0 ms are not.
local function read_pace()
  -- Of a key of a wrong kind it gets an error, in which none of them is set.
  local set = redis.pcall('HMGET', settings, 'batch_size', 'tick_ms', 'capacity', 'max_active', 'paused')
  local function number(text, least, most, configured)
    local value = tonumber(string.match(text or '', '^%d+$'))
    return value and value >= least and value <= most and value or configured
  end
  batch = number(set[1], 0, 10000, tonumber(ARGV[3]))
  tick_ms = number(set[2], 500, 60000, tonumber(ARGV[4]))
  capacity = number(set[3], 0, 1000000000, tonumber(ARGV[5]))
  max_active = number(set[4], 0, 1000000000, nil)
  -- Whatever somebody wrote to stop admission stops it.
  local pause = string.lower(set[5] or '')
  paused = pause ~= '' and pause ~= '0' and pause ~= 'false'
end
read_pace()

local mark = tonumber(redis.call('GET', admitted_count)) or 0

-- How many more people may be inside, counting those who have been admitted and have not polled yet.
local function room()
  if paused then
    return 0
  end
  if not max_active then
    return batch
  end
  local inside = redis.call('ZCOUNT', passes, '(' .. now_s, '+inf') + redis.call('ZCOUNT', waiting, '-inf', mark)
  return math.max(0, math.min(batch, max_active - inside))
end

-- From now on no batch for a whole tick; it is kept how long that is. Returns when the next one may go.
local function pay_a_tick()
  redis.call('HSET', stats, 'next_allowed', now + tick_ms, 'tick_paid', tick_ms)
  return now + tick_ms
end

-- When the next batch may go, nil if that is not known, and the tick that the last one paid for. It holds whatever this
-- call's own tick is: replicas may differ in theirs, and an operator may change it. Only a time further ahead than was
-- paid for is from another clock: then what was paid for starts over.
local function read_next_allowed()
  local kept = redis.call('HMGET', stats, 'next_allowed', 'tick_paid')
  local at, paid_ms = tonumber(kept[1]), tonumber(kept[2]) or tick_ms
  if at and at > now + paid_ms then
    at = now + paid_ms
    redis.call('HSET', stats, 'next_allowed', at)
  end
  return at, paid_ms
end
