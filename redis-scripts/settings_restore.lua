-- settings_restore.lua: what an operator set for a target is written back where the store has lost it or has something
-- older. What is as new or newer stays; of two that nobody gave a version, the stored one does.
--
-- KEYS   1 settings   hash, no TTL, as includes/target.lua has it
-- ARGV   1 version, 0 where it has none   2 a field   3.. its value, and so on: all fields, `version` among them
-- Reply  1: written | 0: not needed any more
-- Example  nothing is stored, ARGV 3 version 3 paused 1: 1; again: 0
assert(#KEYS == 1 and #ARGV >= 3 and #ARGV % 2 == 1, 'settings_restore takes the key, a version, fields and values')
local settings, version = KEYS[1], tonumber(ARGV[1])

if redis.call('EXISTS', settings) == 1 then
  local stored = redis.call('HGET', settings, 'version') or ''
  if (tonumber(string.match(stored, '^%d+$')) or 0) >= version then
    return { 0 }
  end
end
redis.call('DEL', settings)
redis.call('HSET', settings, unpack(ARGV, 2))
return { 1 }
