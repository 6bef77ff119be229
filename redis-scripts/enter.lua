-- enter.lua: people enter. Each keeps the place or the live pass they have (this counts as a poll), or gets the next
-- number at the end, or learns that the queue is full.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9.. the user ids, each once, in the order of arrival
-- Reply  now, next_allowed, batch, tick_ms, paused, moving, expired, then for each person three integers:
--        1 number ahead | 2 expiry wait_ms (just issued) | 3 expiry 0 (live pass) | 4 0 0 (full)
-- Example  enter 7 and 8 into an empty target at 1000000 with batch 100, tick 2000:
--          1000000 1002000 100 2000 0 1 0   1 1 0   1 2 1
assert(#ARGV >= 9, 'enter takes at least one user')

-- A new life: removes what the last one left. Floors and claims stay: their passes may still be live (direct ones, or
-- from before a restart), and without floors and claims they could buy twice (ADR 0002).
local function begin_life()
  -- SET comes first: a full Redis refuses here, before anything is written (after a DEL a script may continue).
  redis.call('SET', admitted_count, 0)
  redis.call('DEL', waiting, heartbeat, passes, marks, stats)
  mark, admitted_here = 0, 0
  -- The first batch goes one tick after the first entry.
  next_allowed = pay_a_tick()
  redis.call('HSET', stats, 'born', now, 'pulse', now)
end

local born = redis.call('EXISTS', seq) == 0
if born then
  begin_life()
end

-- Notes an entry time at most every half second, and when the clock went back.
local marked_at = tonumber(redis.call('HGET', stats, 'marked_at'))
local function mark_entry(number)
  if marked_at and now - marked_at < 500 and now >= marked_at then
    return
  end
  marked_at = now
  redis.call('ZADD', marks, number, string.format('%.0f:%.0f', number, now))
  redis.call('HSET', stats, 'marked_at', now)
end

local function add(user)
  local before = redis.call('ZCARD', waiting)
  if before >= capacity then
    return FULL, 0, 0
  end
  local number = redis.call('INCR', seq)
  mark_entry(number)
  redis.call('ZADD', waiting, number, user)
  redis.call('ZADD', heartbeat, now, user)
  redis.call('HINCRBY', stats, 'entered', 1)
  return WAITING, number, before - admitted_here
end

local people, found = {}, false
for i = 9, #ARGV do
  local code, a, b = visit(ARGV[i])
  if code == NOT_IN_QUEUE then
    code, a, b = add(ARGV[i])
  end
  found = found or code ~= FULL
  people[#people + 1], people[#people + 2], people[#people + 3] = code, a, b
end
if found or born then
  slide()
end

local reply = reply_head()
for i = 1, #people do
  reply[7 + i] = people[i]
end
return reply
