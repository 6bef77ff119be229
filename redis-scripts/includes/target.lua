-- What every script of a target begins with: its keys, its rules, the time.
--
-- KEYS   1 waiting         ZSET userId -> number        who waits; the only order there is
--        2 heartbeat       ZSET userId -> ms            last poll
--        3 admitted_count  string                       the mark: numbers up to here are admitted
--        4 seq             string                       last number given; without it the target has no queue
--        5 passes          ZSET userId -> expiry (s)    live passes
--        6 floors          ZSET userId -> floor (s)     a pass with expiry <= floor is spent or revoked
--        7 claims          hash userId -> "nonce expiry lease_until(ms)"
--        8 marks           ZSET "number:ms" -> number   sparse entry times
--        9 stats           hash                         counters, pacing, pulse and grace, waits
--       10 settings        hash, no TTL                 the operator's overrides, and their version
-- ARGV   1 now (ms) for tests, '' for the server's clock    2 idle_ttl_ms   3 batch   4 tick_ms   5 capacity
--        6 silent_after_ms   7 token_ttl_s   8 silent people it may evict      then the script's own, from 9 on
assert(#KEYS == 10 and #ARGV >= 8, 'a target script takes 10 keys and at least 8 arguments')

local waiting, heartbeat, admitted_count, seq, passes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local floors, claims, marks, stats, settings = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local now_s = math.floor(now / 1000)

local idle_ttl_ms = tonumber(ARGV[2])
local silent_after_ms = tonumber(ARGV[6])
local token_ttl_s = tonumber(ARGV[7])
local max_evict = tonumber(ARGV[8])

-- Keeps the target for another idle time. Only people's calls do this, never ticks. `seq` comes first: should the
-- clock move on in between, it ends before the others, and whoever enters then begins a clean life.
local function slide()
  redis.call('PEXPIRE', seq, idle_ttl_ms)
  for _, key in ipairs({ waiting, heartbeat, admitted_count, passes, floors, claims, marks, stats }) do
    redis.call('PEXPIRE', key, idle_ttl_ms)
  end
end

-- The same for a script that wrote to this key alone: nothing to do while it has lost less than a thousandth of the idle
-- time, since all keys slide together. A key that has just come into being has no time to live yet.
local function slide_after(key)
  if redis.call('PTTL', key) < 0.999 * idle_ttl_ms then
    slide()
  end
end
