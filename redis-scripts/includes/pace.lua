-- At what pace people are let in: the operator's overrides before the rules of the call; and how far it has come.
local overrides = redis.call('HMGET', settings, 'batch_size', 'tick_ms', 'capacity', 'max_active', 'paused')
local batch = tonumber(overrides[1]) or tonumber(ARGV[3])
local tick_ms = tonumber(overrides[2]) or tonumber(ARGV[4])
local capacity = tonumber(overrides[3]) or tonumber(ARGV[5])
local max_active = tonumber(overrides[4])
local paused = overrides[5] == '1'

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
