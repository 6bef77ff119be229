-- Who fell silent: the only place that judges it, for evict.lua and admit.lua alike. It is who has not polled for
-- `silent_after_ms`: the heartbeat timeout and its slack, since a tab hidden for long polls every 60.x s.
--
-- Time in which nobody could poll does not count (`docs/design.md`). Ticks and polls fail together, so a gap between two
-- pulses is a time without polls, and everybody then has the whole time to poll again.

-- Writes the pulse, first of all writes: a full Redis fails here exactly when it fails polls. Returns the time (ms)
-- of the latest poll that counts as silence, or -1 while nobody counts as silent.
local function silent_since()
  local before = redis.call('HMGET', stats, 'pulse', 'grace_until')
  local pulse, grace_until = tonumber(before[1]), tonumber(before[2]) or 0
  redis.call('HSET', stats, 'pulse', now)
  local limit = math.min(3 * tick_ms, math.floor(silent_after_ms / 3))
  if not pulse or pulse > now or now - pulse > limit then
    grace_until = now + silent_after_ms
    redis.call('HSET', stats, 'grace_until', grace_until)
  end
  if now < grace_until then
    return -1
  end
  return now - silent_after_ms
end
