-- One person's call: read, decide and update in one go, for enter.lua and status.lua alike.
--
-- Admission is decided by the fixed number and the mark, never by rank (`docs/design.md`).

local NOT_IN_QUEUE, WAITING, ISSUED, LIVE_PASS, FULL = 0, 1, 2, 3, 4

-- A time from another clock is put right already here, because after a failover the first tick comes a tick later, and
-- would then have to wait for another.
local next_allowed = read_next_allowed() or now
-- Admitted people who have not polled yet: they are no longer in front of anybody.
local admitted_here = redis.call('ZCOUNT', waiting, '-inf', mark)
-- Passes found to be over, and counted, in this call.
local expired_now = 0

-- Waits are sorted into buckets of half a second up to 16 s, then 16 an octave: as domain::WaitHistogram does.
-- Returns the wait in ms, or -1 if the entry time is not known.
local function record_wait(number)
  local entry = redis.call('ZREVRANGEBYSCORE', marks, number, '-inf', 'LIMIT', 0, 1)[1]
  if not entry then
    return -1
  end
  local wait = math.max(0, now - tonumber(string.match(entry, ':(%d+)$')))
  local units, octave = math.floor(wait / 500), 0
  while units >= 32 do
    units, octave = math.floor(units / 2), octave + 1
  end
  redis.call('HINCRBY', stats, 'wait_sum_ms', wait)
  redis.call('HINCRBY', stats, 'wait:' .. (octave * 16 + units), 1)
  return wait
end

-- The turn has come: out of the queue, into the passes.
local function issue(user, number)
  if redis.call('ZREM', waiting, user) == 0 then
    return NOT_IN_QUEUE, 0, 0
  end
  redis.call('ZREM', heartbeat, user)
  admitted_here = admitted_here - 1
  local floor = tonumber(redis.call('ZSCORE', floors, user)) or 0
  local expiry = math.max(now_s + token_ttl_s, floor + 1)
  redis.call('ZADD', passes, expiry, user)
  redis.call('HINCRBY', stats, 'issued', 1)
  return ISSUED, expiry, record_wait(number)
end

-- Returns WAITING, number, ahead | ISSUED, expiry, wait | LIVE_PASS, expiry, 0 | NOT_IN_QUEUE, 0, 0.
local function visit(user)
  local number = tonumber(redis.call('ZSCORE', waiting, user))
  if number then
    if number <= mark then
      return issue(user, number)
    end
    redis.call('ZADD', heartbeat, now, user)
    return WAITING, number, redis.call('ZRANK', waiting, user) - admitted_here
  end
  local expiry = tonumber(redis.call('ZSCORE', passes, user))
  if expiry and expiry > now_s then
    return LIVE_PASS, expiry, 0
  end
  if expiry and redis.call('ZREM', passes, user) == 1 then
    redis.call('HINCRBY', stats, 'expired', 1)
    expired_now = expired_now + 1
  end
  return NOT_IN_QUEUE, 0, 0
end

-- The head of the reply; three integers a person follow it, in the order of the call.
local function reply_head()
  return { now, next_allowed, batch, tick_ms, paused and 1 or 0, room() > 0 and 1 or 0, expired_now }
end
