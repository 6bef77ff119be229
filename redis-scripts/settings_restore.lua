-- settings_restore.lua: writes a target's settings back, if the store lost them or has older ones. Settings of the same
-- or a newer version stay; without versions the stored ones stay. If there is a queue, no batch goes for one tick of
-- the restored settings: the last batch may have paid for it, and other lost keys cannot tell.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 version, 0: none; 10 a field; 11.. its value, and so on: all fields,
--        `version` among them
-- Reply  now, 1 (written) | now, 0 (not needed any more)
-- Example  nothing is stored, ARGV 9.. 3 version 3 paused 1: 1000000 1; again: 1000000 0
assert(#ARGV >= 11 and #ARGV % 2 == 1, 'settings_restore takes a version, fields and values')
local version = tonumber(ARGV[9])

-- As src/store/redis/settings.rs reads it: only digits, and below 2^53, where numbers are exact here.
local function version_of(text)
  local number = tonumber(string.match(text or '', '^%d+$'))
  return number and number < 9007199254740992 and number or 0
end

if redis.call('EXISTS', settings) == 1 then
  -- A key of a wrong type counts as missing.
  local stored = redis.pcall('HGET', settings, 'version')
  if type(stored) ~= 'table' and version_of(stored) >= version then
    return { now, 0 }
  end
end
redis.call('DEL', settings)
redis.call('HSET', settings, unpack(ARGV, 10))
read_pace()
local next_allowed = read_next_allowed() or 0
if redis.call('EXISTS', seq) == 1 and next_allowed < now + tick_ms then
  pay_a_tick()
end
return { now, 1 }
