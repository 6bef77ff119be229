-- Who fell silent: the only place that judges it, for evict.lua and admit.lua alike.
--
-- Time in which nobody could poll does not count (DESIGN 3.6). Ticks and polls fail together, so a gap between two
-- pulses is a time without polls, and everybody then has a whole timeout to poll again.

-- Writes the pulse, first of all writes: a full Redis fails here exactly when it fails polls. Returns the time (ms)
-- of the latest poll that counts as silence, or -1 while nobody counts as silent.
local function silent_since()
  local before = redis.call('HMGET', stats, 'pulse', 'grace_until')
  local pulse, grace_until = tonumber(before[1]), tonumber(before[2]) or 0
  redis.call('HSET', stats, 'pulse', now)
  local limit = math.min(3 * tick_ms, math.floor(heartbeat_timeout_ms / 3))
  if not pulse or pulse > now or now - pulse > limit then
    grace_until = now + heartbeat_timeout_ms
    redis.call('HSET', stats, 'grace_until', grace_until)
  end
  if now < grace_until then
    return -1
  end
  return now - heartbeat_timeout_ms
end
