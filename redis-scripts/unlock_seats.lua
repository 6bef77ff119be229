-- unlock_seats.lua: frees seats that one person locked (the demo shop; its database refused after lock_seats.lua).
--
-- KEYS   1.. the seats' locks
-- ARGV   1 user id
-- Reply  how many were this person's
-- Example  key shop:{event:7}:seat:A1 holding 7, ARGV 7: 1, and the key is gone
assert(#KEYS >= 1 and #ARGV == 1, 'unlock_seats takes seats and user')
local user = ARGV[1]

local freed = 0
for _, seat in ipairs(KEYS) do
  if redis.call('GET', seat) == user then
    freed = freed + redis.call('DEL', seat)
  end
end
return freed
