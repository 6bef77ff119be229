-- lock_seats.lua: locks seats of one event for one person, all or none (the demo shop's gate before its database).
--
-- KEYS   1.. the seats' locks
-- ARGV   1 user id; 2 milliseconds a lock holds
-- Reply  1 all locked, those the person had already are renewed | 0 another person holds one: nothing is locked
-- Example  free seat, key shop:{event:7}:seat:A1, ARGV 7 300000: 1, and the key holds 7 for five minutes
assert(#KEYS >= 1 and #ARGV == 2, 'lock_seats takes seats, user and lifetime')
local user, lifetime_ms = ARGV[1], ARGV[2]

for _, seat in ipairs(KEYS) do
  local holder = redis.call('GET', seat)
  if holder and holder ~= user then
    return 0
  end
end
for _, seat in ipairs(KEYS) do
  if not redis.call('SET', seat, user, 'NX', 'PX', lifetime_ms) then
    redis.call('PEXPIRE', seat, lifetime_ms)
  end
end
return 1
